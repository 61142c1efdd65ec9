"""Removes menus, headers and footers that repeat over most pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

_MIN_PAGES = 3


def remove_repeated(
    pages: Sequence[str], form: Callable[[str], str] = str.strip, *, max_lines: int
) -> tuple[list[str], list[str]]:
    """Return the pages without the lines that more than half of them begin or end with, and these lines.

    Lines are equal if their `form` is. Of each end at most `max_lines` are removed, up to the first line of a page's
    own; a page without a line of its own stays as it is. Fewer than three pages show no repetition.
    """
    lines = [page.split("\n") for page in pages]
    counts = Counter(line for each in lines for line in {form(line) for line in each})
    min_pages = max(_MIN_PAGES, len(pages) // 2 + 1)
    bodies, removed = [], dict[str, None]()
    for page, each in zip(pages, lines, strict=True):
        own = [index for index, line in enumerate(each) if form(line) and counts[form(line)] < min_pages]
        start, end = (min(own[0], max_lines), max(own[-1] + 1, len(each) - max_lines)) if own else (0, len(each))
        edges = [line.strip() for line in (*each[:start], *each[end:]) if line.strip()]
        bodies.append("\n".join(each[start:end]) if edges else page)
        removed.update(dict.fromkeys(edges))
    return bodies, list(removed)
