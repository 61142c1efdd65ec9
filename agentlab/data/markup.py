"""Extracts title and text of a Markdown or HTML file with Unix line ends.

Markdown is unchanged, because models read it and passages are located in it. HTML becomes the visible text, one
paragraph per block, without scripts, styles and navigation.
"""

from __future__ import annotations

import re
from typing import Any

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*\s*")
_CODE_FENCE = re.compile(r" {0,3}(```|~~~)")
_HIDDEN_TAGS = ("script", "style", "nav", "noscript", "template", "head")
_BLOCKS = (
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main ol p pre section summary table tr ul"
)
_BEFORE = dict.fromkeys(_BLOCKS.split(), "\n\n") | {"br": "\n"}
_AFTER = dict.fromkeys(_BLOCKS.split(), "\n\n") | {"td": " ", "th": " "}


def read_markdown(text: str) -> tuple[str, str]:
    """Return the first heading (or "") and the text; a `#` line inside a code block is not a heading."""
    in_code = False
    for line in text.split("\n"):
        if _CODE_FENCE.match(line):
            in_code = not in_code
        elif not in_code and (heading := _HEADING.fullmatch(line)) and heading[1]:
            return heading[1], text
    return "", text


def read_html(text: str) -> tuple[str, str]:
    """Return the title, first h1 or "", and the visible text; `pre` keeps its lines."""
    from bs4 import BeautifulSoup

    page = BeautifulSoup(text, "html.parser")
    heading = page.title or page.h1
    title = " ".join(heading.get_text().split()) if heading else ""
    lines = [line.rstrip() for line in "".join(_visible(page)).split("\n")]
    visible = re.sub(r"(?<=\n) (?=\S)", "", "\n".join(lines))
    return title, re.sub(r"\n{3,}", "\n\n", visible).strip()


def _visible(page: Any) -> list[str]:
    from bs4.element import NavigableString, PreformattedString, Tag

    parts: list[str] = []
    # An explicit stack, because pages may be nested deeper than Python's recursion limit.
    open_tags = [(page, iter(page.contents))]
    in_pre = 0
    while open_tags:
        tag, children = open_tags[-1]
        child = next(children, None)
        if child is None:
            open_tags.pop()
            in_pre -= tag.name == "pre"
            parts.append(_AFTER.get(tag.name, ""))
        elif isinstance(child, Tag) and child.name not in _HIDDEN_TAGS:
            open_tags.append((child, iter(child.contents)))
            in_pre += child.name == "pre"
            parts.append(_BEFORE.get(child.name, ""))
        elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
            parts.append(str(child) if in_pre else re.sub(r"\s+", " ", child))
    return parts
