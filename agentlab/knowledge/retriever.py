"""Retrievers by name, with their settings: shipped, of another package, an object or a function of the user.

    async def search(query, *, top_k, doc_ids):     # my_search.py, with `retrieval: {method: ./my_search.py}`
        return [{"doc_id": "loans", "text": "A member may take home eight books."}]

A search of such a function is recorded, because it cannot be repeated. A replay needs neither the function nor what it
searches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.core.events import shorten
from agentlab.core.jsonl import validate_settings
from agentlab.core.messages import Passage
from agentlab.core.protocols import Embedder, Index
from agentlab.data.documents import Document
from agentlab.knowledge.index import Method, Progress, open_index
from agentlab.session.own_searches import as_passage

ROOM = "knowledge.retrievers"


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The input of a retriever's `open_index`."""

    documents: tuple[Document, ...]
    embedder: Embedder
    """Embedder of passages."""
    query_embedder: Embedder
    folder: Path
    """Folder in which an index may be stored."""
    max_tokens: int
    progress: Progress
    options: Mapping[str, Any] = field(default_factory=dict)
    """Method and settings as the spec has them: JSON that identifies the retriever in recordings."""

    async def index(self, method: Method) -> Index:
        """Return the index of `agentlab.knowledge.index`."""
        return await open_index(
            self.documents,
            self.embedder,
            folder=self.folder,
            query_embedder=self.query_embedder,
            method=method,
            max_tokens=self.max_tokens,
            progress=self.progress,
        )


class FunctionIndex:
    """An index that calls `search(query, *, top_k, doc_ids)`; None in a replay that cannot load the function."""

    embedder = None

    def __init__(self, name: str, search: Callable[..., Any] | None, corpus: Corpus) -> None:
        self.name = name
        self.documents = corpus.documents
        self.source = corpus.options
        self._search = search

    async def search(
        self, query: str, vector: Any, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """Return at most `top_k` passages of the function, none of other documents than `doc_ids`.

        Raises ConfigError for a result that is not a list of passages.
        """
        assert self._search is not None, "a replay looks up its searches"
        result = await self._search(query, top_k=top_k, doc_ids=doc_ids)
        if isinstance(result, (str, bytes, Mapping)) or not isinstance(result, Iterable):
            raise ConfigError(
                f"retriever {self.name!r}: it returned {shorten(repr(result))!r}; return a list of passages"
            )
        try:
            passages = [as_passage(each, self.documents) for each in result]
        except ConfigError as problem:
            raise ConfigError(f"retriever {self.name!r}: {problem}") from None
        return tuple(passage for passage in passages if doc_ids is None or passage.doc_id in doc_ids)[:top_k]


@dataclass(frozen=True)
class Retriever:
    """A retriever of a spec with its validated settings."""

    name: str
    plugin: Any
    """Module, object or function; None in a replay without the user's file."""
    settings: Any
    options: Mapping[str, Any]

    @property
    def needs_documents(self) -> bool:
        """True if it searches the documents of the data set, False if it brings its own."""
        if not hasattr(self.plugin, "open_index"):
            return False
        needs: Callable[[Any], bool] = getattr(self.plugin, "needs_documents", lambda settings: True)
        return needs(self.settings)

    def check_installed(self) -> None:
        """Raise MissingExtra if a package of the retriever is not installed."""
        getattr(self.plugin, "check_installed", lambda: None)()

    async def open(self, corpus: Corpus) -> Index:
        """Return the index; raises ConfigError and the errors of the retriever."""
        if hasattr(self.plugin, "open_index"):
            index: Index = await self.plugin.open_index(corpus, self.settings)
            return index
        search = getattr(self.plugin, "search", self.plugin)
        return FunctionIndex(plugins.default_label(self.name), search, corpus)


def find_retriever(
    name: str, settings: Mapping[str, Any], keys: Iterable[str], given: Any = None, *, is_replay: bool = False
) -> Retriever:
    """Return the retriever `name`, or `given` in its place; `keys` are the settings that the spec itself reads.

    Raises ConfigError for an unknown name or key. A replay does not need the file of the user.
    """
    plugin = given
    try:
        plugin = plugin or plugins.resolve(ROOM, name)
    except ConfigError:
        if not is_replay or not {".", "/", ":"} & set(name):
            raise
    function = getattr(plugin, "search", plugin)
    if plugin is not None and not hasattr(plugin, "open_index") and not inspect.iscoroutinefunction(function):
        raise ConfigError(f"retriever {name!r}: it has no `async def search(query, *, top_k, doc_ids)`")
    options = {"retriever": name, **settings}
    model = getattr(plugin, "Settings", None)
    validated = None if plugin is None else validate_settings(model or BaseModel, settings, "retrieval", keys)
    return Retriever(name, plugin, model and validated, options)
