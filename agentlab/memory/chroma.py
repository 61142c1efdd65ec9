"""Memory in Chroma, embedded in this process: the default.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from filelock import FileLock

from agentlab.core.chroma import open_client, open_collection
from agentlab.core.errors import ConfigError
from agentlab.core.files import replace_file
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.memory.base import LOCK_SECONDS, Rows, StoredMemory, Vector, check_embedder, rank
from agentlab.memory.exact import VectorTable

_ABOUT = "agentlab.json"
"""Beside Chroma's own files: whose vectors they hold."""
_MARGIN = 8
"""Neighbours looked at beyond those asked for, so that of equally near facts the oldest is found."""
_BATCH = 5_000
"""Facts in one call; Chroma takes 5,461."""


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> ChromaMemory:
    """Open or create `where`/chroma; ConfigError if it cannot be used or was made with another embedder.

    Chroma itself is loaded at the first use.
    """
    folder = (Path(where) / "chroma").resolve()
    about = folder / _ABOUT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not about.exists():
            replace_file(about, json.dumps({"embedder": embedder.name}))
        holds = json.loads(about.read_text(encoding="utf-8"))["embedder"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: cannot be opened as a memory ({error})") from error
    check_embedder(str(folder), holds, embedder)
    return ChromaMemory(folder, embedder, user)


class ChromaMemory(StoredMemory):
    name = "chroma"
    # Chroma's own errors are no common family: ChromaError, but also RuntimeError, and AttributeError for a client
    # that did not come up.
    failures = (Exception,)

    def __init__(self, folder: Path, embedder: Embedder, user: str) -> None:
        super().__init__(str(folder), embedder, user)
        self._collection = "user-" + hashlib.sha256(user.encode()).hexdigest()[:40]
        self._store = _Store.enter(folder)
        self._open = True

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._store.client() as client:
            yield _ChromaRows(client, self._collection)

    def _release(self) -> None:
        if self._open:
            self._open = False
            self._store.leave()


class _ChromaRows:
    """One user's collection, under the lock."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._collection = open_collection(client, name)

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        found = self._collection.query(
            query_embeddings=[vector],
            n_results=count + _MARGIN,
            include=["documents", "metadatas", "embeddings"],
        )
        facts, vectors = _oldest_first(found["documents"][0], found["metadatas"][0], found["embeddings"][0])
        return rank(facts, vectors, vector, count) if facts else []

    def get(self, fact_id: str) -> Fact | None:
        found = self._collection.get(where={"id": {"$eq": fact_id}}, include=["documents", "metadatas"])
        return _fact(found["documents"][0], found["metadatas"][0]) if found["ids"] else None

    def all(self) -> list[Fact]:
        found = self._collection.get(include=["documents", "metadatas"])
        pairs = zip(found["documents"], found["metadatas"], strict=True)
        return [_fact(text, about) for text, about in sorted(pairs, key=lambda pair: pair[1]["number"])]

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        # Chroma skips a name that it has, without a word, so the name inside is one that nobody has.
        names = [uuid.uuid4().hex for _ in facts]
        write = self._collection.add
        if replaces is not None:
            # The record of the one becomes that of the other, so that there is always one of the two.
            names, write = [self._inside(replaces)], self._collection.update
        about = [
            {"id": fact.id, "created": fact.created.isoformat(), "number": number}
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

    def remove(self, fact_id: str) -> None:
        self._collection.delete(ids=[self._inside(fact_id)])

    def clear(self) -> None:
        self._client.delete_collection(self._collection.name)

    def copy(self) -> Rows:
        found = self._collection.get(include=["documents", "metadatas", "embeddings"])
        facts, vectors = _oldest_first(found["documents"], found["metadatas"], found["embeddings"])
        table = VectorTable()
        if facts:
            table.put(facts, list(vectors))
        return table

    def _inside(self, fact_id: str) -> str:
        return str(self._collection.get(where={"id": {"$eq": fact_id}}, include=[])["ids"][0])


def _oldest_first(
    texts: Sequence[str], about: Sequence[dict[str, Any]], vectors: Sequence[Any]
) -> tuple[list[Fact], Vector]:
    age = sorted(range(len(texts)), key=lambda row: about[row]["number"])
    return [_fact(texts[row], about[row]) for row in age], np.array(vectors, dtype=np.float32)[age]


def _fact(text: str, about: dict[str, Any]) -> Fact:
    return Fact(id=about["id"], text=text, created=datetime.fromisoformat(about["created"]))


class _Store:
    """A folder of Chroma as this process sees it: one client for all memories in it, until the last one leaves."""

    _entered: ClassVar[dict[Path, _Store]] = {}
    _entering = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memories = 0
        self._lock = threading.Lock()
        self._others = FileLock(folder / "agentlab.lock", timeout=LOCK_SECONDS)
        self._client: Any = None
        self._seen: tuple[int, bytes] | None = None

    @classmethod
    def enter(cls, folder: Path) -> _Store:
        with cls._entering:
            store = cls._entered.setdefault(folder, cls(folder))
            store._memories += 1
            return store

    def leave(self) -> None:
        with self._entering:
            self._memories -= 1
            if not self._memories:
                del self._entered[self.folder]
                with self._lock:
                    self._close()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of the files as they are now, nobody else's before the block ends; OSError if they are gone."""
        with self._lock:
            (self.folder / _ABOUT).stat()  # the lock would make a folder that is gone anew
            with self._others:
                if self._client is not None and self._state() != self._seen:
                    self._close()
                if self._client is None:
                    self._client = open_client(self.folder)
                yield self._client
                self._seen = self._state()

    def _state(self) -> tuple[int, bytes]:
        """Which file the database is, and the counter of changes that SQLite keeps in its header."""
        with (self.folder / "chroma.sqlite3").open("rb") as database:
            return os.fstat(database.fileno()).st_ino, database.read(28)[24:]

    def _close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.close()
