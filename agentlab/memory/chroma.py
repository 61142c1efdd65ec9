"""Memory in Chroma, embedded in this process.

    memory = connect(Path("state"), embedder, user="ann")

Each user has one collection in the folder `chroma`, searched by cosine similarity. A client of Chroma does not see the
writes of other processes. So all memories of a folder in one process share one client under a file lock. The client is
opened again after another process has written. The search is approximate (HNSW), but its settings find the nearest
facts of a store as small as a memory. This module computes the scores.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from filelock import FileLock

from agentlab.core.errors import ConfigError, needs
from agentlab.core.files import read_bytes, write_atomically
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.core.strict_json import parse_json
from agentlab.memory.base import (
    LOCK_SECONDS,
    Rows,
    StoredMemory,
    Vector,
    check_dimensions,
    check_embedder,
    rank,
    stored_fact,
)
from agentlab.memory.chroma_check import DATABASE, Files, diagnose, files_of, load_fingerprint, save_fingerprint
from agentlab.memory.exact import VectorTable

KEPT_IN = "chroma"
_ABOUT = "agentlab.json"
"""File beside Chroma's own; it names the embedder of the vectors."""
_HNSW = {"space": "cosine", "max_neighbors": 64, "ef_construction": 400, "ef_search": 800, "num_threads": 1}
"""Settings of the index; Chroma's default is l2 distance.

With more than one thread, Chroma sometimes loses a vector while it builds the index, and builds differ.
"""
_EXTRA_NEIGHBOURS = 8
"""Neighbours requested beyond `count`, so that the oldest of equally near facts is among them."""
_ALL = ["documents", "metadatas", "embeddings"]
_BATCH = 5_000
"""Facts in one call; Chroma's limit is 5,461."""


def connect(location: str | Path, embedder: Embedder, *, user: str = "user") -> ChromaMemory:
    """Open or create `location`/chroma; raise ConfigError if it cannot be used or has another embedder.

    The first operation imports Chroma.
    """
    folder = (Path(location) / KEPT_IN).resolve()
    about = folder / _ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not about.exists():
            write_atomically(about, json.dumps({"embedder": embedder.name}))
        stored_name = parse_json(read_bytes(about, follow_links=False))["embedder"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: cannot be opened as a memory ({error})") from error
    check_embedder(str(folder), stored_name, embedder)
    return ChromaMemory(folder, embedder, user)


class ChromaMemory(StoredMemory):
    # Chroma's errors have no common base: ChromaError, RuntimeError, and AttributeError if the client did not start.
    failures = (Exception,)

    def __init__(self, folder: Path, embedder: Embedder, user: str) -> None:
        super().__init__("chroma", str(folder), embedder, user)
        self._collection = "user-" + hashlib.sha256(user.encode()).hexdigest()[:40]
        with _ENTERING:
            self._folder = _FOLDERS.setdefault(folder, _Folder(folder))

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._folder.client() as client:
            yield _ChromaRows(client, self._collection)

    def _release(self) -> None:
        self._folder.close()


class _ChromaRows:
    """One user's collection, under the lock."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        # Without embedding_function=None, Chroma downloads an embedder.
        self._collection = client.get_or_create_collection(name, embedding_function=None, configuration={"hnsw": _HNSW})

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        with self._dimensions_checked(vector):
            result = self._collection.query(
                query_embeddings=[vector], n_results=count + _EXTRA_NEIGHBOURS, include=_ALL
            )
        facts, vectors = _oldest_first({name: rows[0] for name, rows in result.items() if rows})
        return rank(facts, vectors, vector, count) if facts else []

    def get(self, fact_id: str) -> Fact | None:
        facts, _ = _oldest_first(self._collection.get(where={"id": {"$eq": fact_id}}, include=_ALL))
        return facts[0] if facts else None

    def all(self) -> list[Fact]:
        return self.copy().all()

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        # Chroma silently skips a name that exists, so each record gets a random one.
        names = [uuid.uuid4().hex for _ in facts]
        write = self._collection.add
        if replaces is not None:
            # With an update in place, the store has one of the two facts at any moment.
            names = self._collection.get(where={"id": {"$eq": replaces}}, include=[])["ids"]
            write = self._collection.update
        about = [
            {"id": fact.id, "created": fact.created.isoformat(), "number": number, "about": fact.about}
            for number, fact in enumerate(facts, start=time.time_ns())
        ]
        for start in range(0, len(facts), _BATCH):
            some = slice(start, start + _BATCH)
            with self._dimensions_checked(vectors[start]):
                write(
                    ids=names[some],
                    embeddings=list(vectors[some]),
                    documents=[fact.text for fact in facts[some]],
                    metadatas=about[some],
                )

    @contextmanager
    def _dimensions_checked(self, vector: Vector) -> Iterator[None]:
        """Raise ConfigError instead of an error of Chroma if the stored vectors have another length."""
        try:
            yield
        except Exception:
            stored = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
            if len(stored):
                check_dimensions(len(stored[0]), vector.size)
            raise

    def erase(self, fact_id: str | None) -> int:
        if fact_id is None:
            count = int(self._collection.count())
            self._client.delete_collection(self._collection.name)
            return count
        names = self._collection.get(where={"id": {"$eq": fact_id}}, include=[])["ids"]
        if names:
            self._collection.delete(ids=names)
        return len(names)

    def copy(self) -> VectorTable:
        table = VectorTable()
        table.load(*_oldest_first(self._collection.get(include=_ALL)))
        return table


def _oldest_first(result: Mapping[str, Any]) -> tuple[list[Fact], Vector]:
    records = zip(result["metadatas"], result["documents"], result["embeddings"], strict=True)
    rows = sorted(records, key=lambda row: row[0]["number"])
    facts = [stored_fact({**about, "text": text}) for about, text, _ in rows]
    return facts, np.array([vector for *_, vector in rows], dtype=np.float32)


class _Folder:
    """Folder of Chroma with one client for all memories of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._others = FileLock(folder / "agentlab.lock", timeout=LOCK_SECONDS)
        self._client: Any = None
        self._seen: tuple[int, bytes] | None = None
        self._damaged: tuple[Files, str] | None = None

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a client of the current files and lock out other processes; raise OSError if the files are gone."""
        with needs("a memory in Chroma", "chroma"):
            import chromadb
            from chromadb.config import Settings
        with self._lock:
            (self.folder / _ABOUT).stat()  # the lock would recreate a deleted folder
            with self._others:
                self._check()
                if self._client is not None and self._state() != self._seen:
                    self.close()
                if self._client is None:
                    self._client = chromadb.PersistentClient(self.folder, settings=Settings(anonymized_telemetry=False))
                try:
                    yield self._client
                finally:
                    if (files := files_of(self.folder)) != load_fingerprint(self.folder):
                        save_fingerprint(self.folder, files)
                self._seen = self._state()

    def _check(self) -> None:
        """Raise OSError if the files differ from their fingerprint and Chroma cannot read them."""
        files, noted = files_of(self.folder), load_fingerprint(self.folder)
        if files == noted:
            return
        if self._damaged is None or self._damaged[0] != files:
            self._damaged = files, diagnose(self.folder, files, noted)
        if self._damaged[1]:
            # Closing the client would overwrite the files or end this process.
            self._client = None
            raise OSError(f"{self._damaged[1]}; restore the folder from a copy, or delete it to start empty")
        save_fingerprint(self.folder, files)

    def close(self) -> None:
        """Close the client. Another memory of this folder opens a new one when it needs it."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    def _state(self) -> tuple[int, bytes]:
        """Return the inode of the database and the change counter in its SQLite header."""
        with (self.folder / DATABASE).open("rb") as database:
            return os.fstat(database.fileno()).st_ino, database.read(28)[24:]


_FOLDERS: WeakValueDictionary[Path, _Folder] = WeakValueDictionary()
_ENTERING = threading.Lock()
