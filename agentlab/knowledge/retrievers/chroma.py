"""Search in Chroma: a collection built from the documents, or one that exists, in a folder or on a server.

    retrieval: {method: chroma}                                              # built from the documents
    retrieval: {method: chroma, path: ./store, collection: help, doc_id: source}
    retrieval: {method: chroma, path: "http://localhost:8000", collection: help}

An existing collection is only read. Opening a folder of Chroma writes to it, so its files are copied first. The vectors
of the collection must come from the embedder of the spec; a few of them are compared with those of their texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from agentlab.core.errors import ConfigError, ModelUnavailable, needs
from agentlab.core.messages import Passage
from agentlab.core.plugins import check_names
from agentlab.core.protocols import Embedder, Index
from agentlab.core.scratch import process_temp_folder
from agentlab.data.documents import Document
from agentlab.knowledge.index import corpus_key
from agentlab.knowledge.passages import searched_text, split
from agentlab.knowledge.retriever import Corpus

DATABASE = "chroma.sqlite3"
BUILT = "passages"
"""Name of a collection that is built here."""
_CONFIGURATION = {"hnsw": {"space": "cosine", "ef_construction": 400, "ef_search": 400, "num_threads": 1}}
"""Chroma's default is l2 distance; with more than one thread it sometimes loses a vector."""
_BATCH = 256
_COMPARED = 5
"""Number of records whose vectors are compared with those of the embedder."""
_MIN_COSINE = 0.5
"""Minimum median cosine. The same model stays above it, even if titles were embedded, too; others are near 0."""
_LISTED = 100_000
"""Maximum number of records whose documents are listed."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field("", description="folder of an existing store, or http://host:port of a server")
    collection: str = Field("", description="its collection (default: the only one)")
    doc_id: str | None = Field("doc_id", description="metadata that holds the document's id; null: the record's own id")
    title: str = Field("title", description="metadata that holds the document's title, if there is one")


def needs_documents(settings: Settings) -> bool:
    """Return False for an existing store, which has its own documents."""
    return not settings.path


def check_installed() -> None:
    """Raise MissingExtra without Chroma."""
    with needs("retrieval by Chroma", "chroma"):
        import chromadb  # noqa: F401 - the import is the check


async def open_index(corpus: Corpus, settings: Settings) -> Index:
    """Return the index; its collection is opened at the first search, or by `start`."""
    if settings.collection and not settings.path:
        raise ConfigError("retrieval.collection: a collection is in a store; name its folder or server in `path`")
    return ChromaIndex(corpus, settings)


def _connect(kind: str, **options: Any) -> Any:
    import chromadb
    from chromadb.config import Settings as ClientSettings

    return getattr(chromadb, kind)(settings=ClientSettings(anonymized_telemetry=False), **options)


class ChromaIndex:
    """A collection of Chroma; Chroma is imported and opened at the first use."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        self.name = f"chroma {settings.collection}".strip()
        self.documents: Sequence[Document] = corpus.documents
        self.embedder: Embedder = corpus.query_embedder
        self.source = {**corpus.options, "embedder": self.embedder.name}
        if not settings.path:
            self.source["corpus"] = corpus_key(corpus.documents, corpus.embedder, corpus.max_tokens)
        self._corpus = corpus
        self._settings = settings
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._collection: Any = None

    async def start(self) -> None:
        """Open or build the collection and check it; raises ConfigError."""
        async with self._opening:
            if self._collection is None:
                check_installed()
                if not self._settings.path:
                    self._collection = await self._open_built()
                else:
                    collection = await asyncio.to_thread(self._open_existing)
                    await self._check(collection)
                    self._collection = collection

    async def search(
        self, query: str, vector: Any, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """Return the `top_k` nearest records, best first; the score is the cosine for vectors of unit length."""
        try:
            await self.start()
        except ConfigError as problem:
            raise ModelUnavailable(str(problem)) from None  # every later search would fail, too
        if doc_ids is not None and not doc_ids:
            return ()
        limits = {} if doc_ids is None else self._filter(doc_ids)
        included = ["documents", "metadatas", "distances"]
        rows = await asyncio.to_thread(
            self._collection.query, query_embeddings=[vector], n_results=top_k, include=included, **limits
        )
        ids, texts, metadata, distances = (rows[name][0] for name in ("ids", *included))
        # The parsed configuration would load the embedder of the collection.
        space = (self._collection.configuration_json.get("hnsw") or {}).get("space", "l2")
        scale = 0.5 if space == "l2" else 1.0
        passages = [
            self._passage(record_id, text or "", about or {}, round(1 - scale * float(distance), 5))
            for record_id, text, about, distance in zip(ids, texts, metadata, distances, strict=True)
        ]
        return tuple(sorted(passages, key=lambda passage: -(passage.score or 0)))

    async def list_documents(self) -> list[tuple[str, str]]:
        """Return id and title of each document of the collection, in its order."""
        await self.start()
        rows = await asyncio.to_thread(self._collection.get, include=["metadatas"], limit=_LISTED)
        listed: dict[str, str] = {}
        for record_id, about in zip(rows["ids"], rows["metadatas"], strict=True):
            listed.setdefault(self._doc_id(record_id, about or {}), str((about or {}).get(self._settings.title, "")))
        return list(listed.items())

    async def close(self) -> None:
        """Close the client; a later search opens it again."""
        client, self._client, self._collection = self._client, None, None
        if client is not None:
            for part in (client, getattr(client, "_admin_client", None)):
                session = getattr(getattr(part, "_server", None), "_session", None)
                if session is not None:
                    session.close()  # Chroma leaves its connections to a server open
            await asyncio.to_thread(client.close)

    def _doc_id(self, record_id: str, about: Mapping[str, Any]) -> str:
        return record_id if self._settings.doc_id is None else str(about.get(self._settings.doc_id, record_id))

    def _passage(self, record_id: str, text: str, about: Mapping[str, Any], score: float) -> Passage:
        title = str(about.get(self._settings.title, ""))
        start = int(about["start"]) if isinstance(about.get("start"), int) else 0
        doc_id = self._doc_id(record_id, about)
        return Passage(
            id=record_id, doc_id=doc_id, title=title, text=text, start=start, end=start + len(text), score=score
        )

    def _filter(self, doc_ids: Sequence[str]) -> dict[str, Any]:
        """Return the options of a query that limit it to documents; Chroma compares a number with numbers only."""
        if self._settings.doc_id is None:
            return {"ids": list(doc_ids)}
        numbers = [int(doc_id) for doc_id in doc_ids if doc_id.isdecimal() and len(doc_id) < 18]
        choices = [{self._settings.doc_id: {"$in": values}} for values in (list(doc_ids), numbers) if values]
        return {"where": choices[0] if len(choices) == 1 else {"$or": choices}}

    async def _open_built(self) -> Any:
        from filelock import AsyncFileLock

        folder = self._corpus.folder / f"chroma-{self.source['corpus']}"
        self._corpus.folder.mkdir(parents=True, exist_ok=True)
        async with AsyncFileLock(f"{folder}.lock"):
            if not folder.exists():
                await self._build(folder)
        self._client = await asyncio.to_thread(_connect, "PersistentClient", path=folder)
        return await asyncio.to_thread(self._client.get_collection, BUILT, embedding_function=None)

    async def _build(self, folder: Path) -> None:
        """Build the collection in a temporary folder and move it, so that `folder` is always complete."""
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        passages = [p for document in self._corpus.documents for p in split(document, self._corpus.max_tokens)]
        client = await asyncio.to_thread(_connect, "PersistentClient", path=unfinished)
        collection = client.create_collection(BUILT, embedding_function=None, configuration=_CONFIGURATION)
        for start in range(0, len(passages), _BATCH):
            some = passages[start : start + _BATCH]
            await asyncio.to_thread(
                collection.add,
                ids=[passage.id for passage in some],
                embeddings=list(await self._corpus.embedder.embed([searched_text(passage) for passage in some])),
                documents=[passage.text for passage in some],
                metadatas=[{"doc_id": p.doc_id, "title": p.title, "start": p.start} for p in some],
            )
            self._corpus.progress(min(start + _BATCH, len(passages)), len(passages))
        await asyncio.to_thread(client.close)
        unfinished.rename(folder)

    def _open_existing(self) -> Any:
        self._client = self._open_server() if self._settings.path.startswith("http") else self._open_copy()
        names = [collection.name for collection in self._client.list_collections()]
        name = self._settings.collection or (names[0] if len(names) == 1 else "")
        check_names("collection", [name], names, "retrieval.collection: ")
        return self._client.get_collection(name, embedding_function=None)

    def _open_server(self) -> Any:
        address = urlsplit(self._settings.path)
        is_tls = address.scheme == "https"
        try:
            port = address.port or (443 if is_tls else 8000)
            return _connect("HttpClient", host=address.hostname or "", port=port, ssl=is_tls)
        except Exception as problem:  # Chroma has no common base of its errors
            raise ConfigError(f"retrieval.path: no Chroma responds at {self._settings.path}: {problem}") from None

    def _open_copy(self) -> Any:
        folder = Path(self._settings.path).expanduser()
        if not (folder / DATABASE).is_file():
            raise ConfigError(f"retrieval.path: {folder} is not a store of Chroma: it has no {DATABASE}")
        copy = Path(tempfile.mkdtemp(prefix="chroma-", dir=process_temp_folder()))
        shutil.copytree(folder, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(f"{DATABASE}*"))
        try:
            # Another process may be writing: a backup is consistent, a copy of the file may not be.
            address = (folder / DATABASE).resolve().as_uri()
            with (
                contextlib.closing(sqlite3.connect(f"{address}?mode=ro", uri=True)) as original,
                contextlib.closing(sqlite3.connect(copy / DATABASE)) as database,
            ):
                original.backup(database)
            return _connect("PersistentClient", path=copy)
        except Exception as problem:
            raise ConfigError(f"retrieval.path: {folder} cannot be opened as a store of Chroma: {problem}") from None

    async def _check(self, collection: Any) -> None:
        """Raise ConfigError if the collection is not of this embedder, or its document ids are others."""
        name, key = collection.name, self._settings.doc_id
        rows = await asyncio.to_thread(
            collection.get, limit=_COMPARED, include=["documents", "metadatas", "embeddings"]
        )
        texts = [text for text in rows["documents"] if text]
        if not texts:
            raise ConfigError(f"collection {name!r} has no record with a text")
        metadata = rows["metadatas"][0] or {}
        if key is not None:
            check_names(f"metadata of collection {name!r}", [key], metadata, "retrieval.doc_id: ")
        stored = np.array([v for v, text in zip(rows["embeddings"], rows["documents"], strict=True) if text])
        vectors = await self.embedder.embed(texts)
        mine = f"the embedder {self.embedder.name}"
        remedy = "set `embedder` to the one that filled the collection"
        if stored.shape[1] != vectors.shape[1]:
            made = f"{stored.shape[1]} dimensions, {mine} makes {vectors.shape[1]}"
            raise ConfigError(f"collection {name!r} has vectors of {made}; {remedy}")
        lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(vectors, axis=1)
        cosine = float(np.median((stored * vectors).sum(axis=1) / np.where(lengths > 0, lengths, 1)))
        if cosine < _MIN_COSINE:
            raise ConfigError(
                f"collection {name!r} was not filled by {mine}: the cosine of its vectors with those of their texts"
                f" is {cosine:.2f}; {remedy}"
            )
        own = [document.doc_id for document in self.documents[:_BATCH]]
        if own and not (await asyncio.to_thread(collection.get, limit=1, **self._filter(own)))["ids"]:
            raise ConfigError(
                f"collection {name!r}: no {key or 'id'} is that of a document of the data set: it has"
                f" {self._doc_id(rows['ids'][0], metadata)!r}, the data set {own[0]!r}; retrieval.doc_id names the"
                f" metadata, one of: {', '.join(metadata)}"
            )
