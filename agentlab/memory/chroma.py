"""Memory in Chroma, embedded in this process.

    memory = connect(Path("state"), embedder, user="ann")

One collection a user, found by cosine similarity in a folder of its own (`chroma`). A client of Chroma does not find
what another process writes, so all memories of a folder in one process share one client under a file lock, and it is
opened anew where somebody else has been at the database. The search is approximate (HNSW), set so wide that at the size
of a memory it finds what is nearest; the scores are computed here.
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

from agentlab.core.errors import ConfigError
from agentlab.core.files import read_bytes, write_atomically
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.core.strict_json import parse_json
from agentlab.memory.base import LOCK_SECONDS, Rows, StoredMemory, Vector, check_embedder, rank, stored_fact
from agentlab.memory.chroma_check import DATABASE, Files, diagnose, files_of, load_fingerprint, note
from agentlab.memory.exact import VectorTable

KEPT_IN = "chroma"
_ABOUT = "agentlab.json"
"""Beside Chroma's own files: whose vectors they hold."""
_HNSW = {"space": "cosine", "max_neighbors": 64, "ef_construction": 400, "ef_search": 800, "num_threads": 1}
"""Chroma's own default is l2 distance.

One thread: with more, Chroma now and then loses a vector while it builds, and no two builds are the same.
"""
_MARGIN = 8
"""Neighbours looked at beyond those asked for, so that of equally near facts the oldest is found."""
_ALL = ["documents", "metadatas", "embeddings"]
_BATCH = 5_000
"""Facts in one call; Chroma takes 5,461."""


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> ChromaMemory:
    """Open or create `where`/chroma; ConfigError if it cannot be used or was made with another embedder.

    Chroma itself is loaded at the first use.
    """
    folder = (Path(where) / KEPT_IN).resolve()
    about = folder / _ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not about.exists():
            write_atomically(about, json.dumps({"embedder": embedder.name}))
        holds = parse_json(read_bytes(about, follow_links=False))["embedder"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: cannot be opened as a memory ({error})") from error
    check_embedder(str(folder), holds, embedder)
    return ChromaMemory(folder, embedder, user)


class ChromaMemory(StoredMemory):
    # Chroma's own errors are no common family: ChromaError, but also RuntimeError, and AttributeError for a client
    # that did not come up.
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
        # Without Chroma's own embedder, which would be downloaded.
        self._collection = client.get_or_create_collection(name, embedding_function=None, configuration={"hnsw": _HNSW})

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        found = self._collection.query(query_embeddings=[vector], n_results=count + _MARGIN, include=_ALL)
        facts, vectors = _oldest_first({name: rows[0] for name, rows in found.items() if rows})
        return rank(facts, vectors, vector, count) if facts else []

    def get(self, fact_id: str) -> Fact | None:
        facts, _ = _oldest_first(self._collection.get(where={"id": {"$eq": fact_id}}, include=_ALL))
        return facts[0] if facts else None

    def all(self) -> list[Fact]:
        return self.copy().all()

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        # Chroma skips a name that it has, without a word, so the name inside is one that nobody has.
        names = [uuid.uuid4().hex for _ in facts]
        write = self._collection.add
        if replaces is not None:
            # The record of the one becomes that of the other, so that there is always one of the two.
            names = self._collection.get(where={"id": {"$eq": replaces}}, include=[])["ids"]
            write = self._collection.update
        about = [
            {"id": fact.id, "created": fact.created.isoformat(), "number": number, "about": fact.about}
            for number, fact in enumerate(facts, start=time.time_ns())
        ]
        for start in range(0, len(facts), _BATCH):
            some = slice(start, start + _BATCH)
            write(
                ids=names[some],
                embeddings=list(vectors[some]),
                documents=[fact.text for fact in facts[some]],
                metadatas=about[some],
            )

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


def _oldest_first(found: Mapping[str, Any]) -> tuple[list[Fact], Vector]:
    together = zip(found["metadatas"], found["documents"], found["embeddings"], strict=True)
    rows = sorted(together, key=lambda row: row[0]["number"])
    facts = [stored_fact({**about, "text": text}) for about, text, _ in rows]
    return facts, np.array([vector for *_, vector in rows], dtype=np.float32)


class _Folder:
    """A folder of Chroma as this process sees it: one client for all memories in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._others = FileLock(folder / "agentlab.lock", timeout=LOCK_SECONDS)
        self._client: Any = None
        self._seen: tuple[int, bytes] | None = None
        self._damaged: tuple[Files, str] | None = None

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of the files as they are now, nobody else's before the block ends; OSError if they are gone."""
        import chromadb
        from chromadb.config import Settings

        with self._lock:
            (self.folder / _ABOUT).stat()  # the lock would make a folder that is gone anew
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
                        note(self.folder, files)
                self._seen = self._state()

    def _check(self) -> None:
        """Raise OSError where the files are not as they were noted, and cannot be used as they are."""
        files, before = files_of(self.folder), load_fingerprint(self.folder)
        if files == before:
            return
        if self._damaged is None or self._damaged[0] != files:
            self._damaged = files, diagnose(self.folder, files, before)
        if self._damaged[1]:
            # Not closed: that would write what it holds over what is there, or end this process.
            self._client = None
            raise OSError(f"{self._damaged[1]}; take the folder from a copy, or delete it to begin anew")
        note(self.folder, files)

    def close(self) -> None:
        """Let go of the client; where another memory goes on, it opens one anew."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    def _state(self) -> tuple[int, bytes]:
        """Which file the database is, and the counter of changes that SQLite keeps in its header."""
        with (self.folder / DATABASE).open("rb") as database:
            return os.fstat(database.fileno()).st_ino, database.read(28)[24:]


_FOLDERS: WeakValueDictionary[Path, _Folder] = WeakValueDictionary()
_ENTERING = threading.Lock()
