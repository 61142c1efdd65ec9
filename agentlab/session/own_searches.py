"""Searches that a flow makes without the session: by its own retriever, or by a tool that the spec names."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Passage
from agentlab.core.protocols import IndexedDocument
from agentlab.core.strict_json import LENIENT


class LookupTool(Struct, frozen=True, kw_only=True):
    """A tool that searches, and the path of the documents in its JSON output, such as `results.doc_id`."""

    tool: str
    documents: str

    def documents_of(self, output: str) -> list[Any]:
        """Return the documents in an output of the tool; raises ConfigError if it has none at the path."""
        try:
            values: list[Any] = [LENIENT.decode(output)]
        except (ValueError, RecursionError):
            raise ConfigError(f"lookup: the output of {self.tool} is no JSON, so its documents are unknown") from None
        for key in filter(None, self.documents.split(".")):
            values = [part.get(key) for part in _flat(values) if isinstance(part, Mapping)]
        return [*_flat(values)]


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif value is not None:
            yield value


def as_passage(item: Any, documents: Iterable[IndexedDocument]) -> Passage:
    """Return what a search returned as a passage: a Passage, a mapping with `doc_id` and `text`, or a document's id.

    A mapping may have `id`, `title` and `score`. Raises ConfigError for anything else, and for an id that `documents`
    do not have.
    """
    if isinstance(item, Passage):
        return item
    fields = dict(item) if isinstance(item, Mapping) else {"doc_id": item}
    doc_id = fields.get("doc_id", fields.get("id"))
    document = next((each for each in documents if each.doc_id == str(doc_id)), None)
    is_text = isinstance(fields.get("text", ""), (str, int, float))
    if not isinstance(doc_id, (str, int)) or not is_text or (document is None and "text" not in fields):
        raise ConfigError(f"a search found {item!r:.100}, which is no document of the data set; add doc_id and text")
    title, text = (str(fields.get(name) or getattr(document, name, "")) for name in ("title", "text"))
    name, score = str(fields.get("id") or doc_id), fields.get("score")
    if "text" in fields and name == str(doc_id):  # two passages of one document need two ids
        name = f"{name}#{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
    score = float(score) if isinstance(score, numbers.Real) else None
    return Passage(id=name, doc_id=str(doc_id), title=title, text=text, start=0, end=len(text), score=score)
