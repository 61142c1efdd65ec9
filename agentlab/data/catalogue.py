"""The list of documents in a tool prompt, and the documents behind the names that a model writes.

    - Law 11: Offside                            a title only one document has
    - pydoc-003 (Library and Extension FAQ)      a shared title: listed by id
    - 0027bff8d2a891ff-41576-43247               no title

Titles are not unique and may be empty, and a long corpus does not fit a prompt. So the list has a token limit and
reports how many documents it omits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agentlab.core.protocols import IndexedDocument


def document_list(documents: Sequence[IndexedDocument], count_tokens: Callable[[str], int], max_tokens: int) -> str:
    """Return as many documents as fit `max_tokens`, one a line in corpus order, and the number of omitted ones.

    `resolve_names` maps every name in the list to its document. The list has at most `max_tokens` by `count_tokens`;
    it is "" if not even its last line fits, or if there is no document.
    """
    lines = _lines(documents)
    if not lines or count_tokens("\n".join(lines)) <= max_tokens:
        return "\n".join(lines)

    def truncated(listed: int) -> str:
        rest = f"({len(lines) - listed} of {len(lines)} documents are not listed; an empty list of names searches all.)"
        return "\n".join([*lines[:listed], rest])

    fit = bisect_right(range(len(lines)), max_tokens, key=lambda listed: count_tokens(truncated(listed)))
    return truncated(fit - 1) if fit else ""


def resolve_names(
    names: Iterable[str], documents: Sequence[IndexedDocument]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the documents that `names` select, in their order, and the names that select none.

    A name is an id, a title or a whole line of `document_list`. An exact id selects its document. Otherwise case,
    surrounding quotes and blanks are ignored: a title selects every document with it, then an id its document. A part
    of a title selects its document if no other title contains it. Blank names are ignored.
    """
    exact = {document.doc_id: document.doc_id for document in documents}
    loose: dict[str, list[str]] = {}
    for document in documents:
        loose.setdefault(_key(document.title), []).append(document.doc_id)
    for document, line in zip(documents, _lines(documents), strict=True):
        for key in (_key(document.doc_id), _key(line)):
            loose.setdefault(key, [document.doc_id])
    selected: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in names:
        if name in exact:
            selected[name] = None
        elif key := _key(name):
            matches = loose.get(key) or _by_part(key, documents)
            selected.update(dict.fromkeys(matches))
            if not matches:
                unknown[name] = None
    return tuple(selected), tuple(unknown)


def _by_part(key: str, documents: Sequence[IndexedDocument]) -> list[str]:
    """Return the one document with `key` as whole words in its title; [] if several have it."""
    matches = [document.doc_id for document in documents if f" {_words(key)} " in f" {_words(document.title)} "]
    return matches if len(matches) == 1 else []


def _words(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.casefold()))


def _lines(documents: Sequence[IndexedDocument]) -> list[str]:
    ids = {_key(document.doc_id): document.doc_id for document in documents}
    titles = Counter(_key(document.title) for document in documents)
    lines = []
    for document in documents:
        title, doc_id, key = _one_line(document.title), _one_line(document.doc_id), _key(document.title)
        if key and titles[key] == 1 and ids.get(key, document.doc_id) == document.doc_id:
            lines.append(f"- {title}")
        else:
            lines.append(f"- {doc_id} ({title})" if title else f"- {doc_id}")
    return lines


def _one_line(name: str) -> str:
    return " ".join(name.split())


def _key(name: str) -> str:
    return _one_line(name.removeprefix("- ").strip(" \t\r\n\"'`")).casefold()
