"""Memory in Chroma, embedded in this process: the default.

    memory = connect(Path("state"), embedder, user="ann")

One collection a user, found by cosine similarity in a folder of its own (`chroma`). A client of Chroma does not see
what another process writes, so all memories of a folder in one process share one client under a file lock, and a
counter beside it, raised before every write, tells when the client must be opened anew. The search is approximate
(HNSW), set so wide that at the size of a memory it finds what is nearest; the scores are computed here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from agentlab.core.chroma import HNSW, open_client
from agentlab.core.errors import ConfigError
from agentlab.core.files import replace_file
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory
from agentlab.memory.base import StoredMemory, Vector, rank

_WAIT = 30.0
"""Seconds to wait for another process."""
_MARGIN = 8
"""Neighbours looked at beyond those asked for, so that of equally near facts the oldest is found."""
_BATCH = 5_000
"""Facts in one call; Chroma takes 5,461."""


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> ChromaMemory:
    """Open or create `where`/chroma; ConfigError if it cannot be used or was made with another embedder.

    Chroma itself is loaded at the first use.
    """
    folder = (Path(where) / "chroma").resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store = _Store.enter(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be opened as a memory ({error})") from error
    try:
        store.prepare(embedder.name)
        return ChromaMemory(store, embedder, user)
    except (OSError, ValueError, KeyError, TypeError) as error:
        store.leave()
        raise ConfigError(f"{folder}: cannot be opened as a memory ({error})") from error
    except ConfigError:
        store.leave()
        raise


class ChromaMemory(StoredMemory):
    name = "chroma"
    # Chroma's own errors are no common family: ChromaError, but also RuntimeError, and AttributeError for a client
    # that did not come up.
    failures = (Exception,)

    def __init__(self, store: _Store, embedder: Embedder, user: str) -> None:
        super().__init__(str(store.folder), embedder, user)
        self._store = store
        self._collection = "user-" + hashlib.sha256(user.encode()).hexdigest()[:40]
        self._open = True

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[_ChromaRows]:
        with self._store.locked():
            yield _ChromaRows(self._store, self._store.collection(self._collection))

    def _snapshot(self) -> Memory:
        parent = Path(tempfile.mkdtemp(prefix="agentlab-memory-"))
        folder = parent / "chroma"
        try:
            with self._store.locked():
                self._store.client()  # finishes what a crash left half done
                shutil.copytree(self._store.folder, folder, ignore=shutil.ignore_patterns("*.lock"))
            return _Copy(_Store.enter(folder), self.embedder, self.user)
        except BaseException:
            shutil.rmtree(parent, ignore_errors=True)
            raise

    def _release(self) -> None:
        if self._open:
            self._open = False
            self._store.leave()


class _Copy(ChromaMemory):
    """A memory whose folder goes with it."""

    def __init__(self, store: _Store, embedder: Embedder, user: str) -> None:
        super().__init__(store, embedder, user)
        self._clean_up = weakref.finalize(self, shutil.rmtree, store.folder.parent, ignore_errors=True)

    def _release(self) -> None:
        super()._release()
        self._clean_up()


class _ChromaRows:
    """One user's collection, under the lock."""

    def __init__(self, store: _Store, collection: Any) -> None:
        self._store = store
        self._collection = collection

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        found = self._collection.query(
            query_embeddings=[vector],
            n_results=count + _MARGIN,
            include=["documents", "metadatas", "embeddings"],
        )
        names, texts, about = found["ids"][0], found["documents"][0], found["metadatas"][0]
        if not names:
            return []
        age = sorted(range(len(names)), key=lambda row: about[row]["number"])
        vectors = np.array(found["embeddings"][0], dtype=np.float32)[age]
        return rank([_fact(texts[row], about[row]) for row in age], vectors, vector, count)

    def get(self, fact_id: str) -> Fact | None:
        found = self._collection.get(where={"id": {"$eq": fact_id}}, include=["documents", "metadatas"])
        return _fact(found["documents"][0], found["metadatas"][0]) if found["ids"] else None

    def all(self) -> list[Fact]:
        found = self._collection.get(include=["documents", "metadatas"])
        pairs = zip(found["documents"], found["metadatas"], strict=True)
        return [_fact(text, about) for text, about in sorted(pairs, key=lambda pair: pair[1]["number"])]

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        # Chroma skips a name that it has, without a word, so the name inside is one that nobody has.
        inside = [uuid.uuid4().hex for _ in facts]
        old = self._inside(replaces) if replaces is not None else None
        number = self._store.announce([self._collection.name, old, inside[0]] if old else None, len(facts))
        about = [
            {"id": fact.id, "created": fact.created.isoformat(), "number": number + place}
            for place, fact in enumerate(facts)
        ]
        for start in range(0, len(facts), _BATCH):
            some = slice(start, start + _BATCH)
            self._collection.add(
                ids=inside[some],
                embeddings=list(vectors[some]),
                documents=[fact.text for fact in facts[some]],
                metadatas=about[some],
            )
        if old:
            self._collection.delete(ids=[old])
            self._store.settle()

    def remove(self, fact_id: str) -> None:
        self._store.announce(None)
        self._collection.delete(ids=[self._inside(fact_id)])

    def clear(self) -> None:
        self._store.announce(None)
        self._store.drop(self._collection.name)

    def _inside(self, fact_id: str) -> str:
        return str(self._collection.get(where={"id": {"$eq": fact_id}}, include=[])["ids"][0])


def _fact(text: str, about: dict[str, Any]) -> Fact:
    return Fact(id=about["id"], text=text, created=datetime.fromisoformat(about["created"]))


class _Store:
    """A folder of Chroma as this process sees it: one client for all memories in it.

    The state file says how many writes were begun, and which fact is just taking the place of another: Chroma cannot do
    both in one step, so whoever comes after a crash finishes the move.
    """

    _all: dict[Path, _Store] = {}  # noqa: RUF012 (shared on purpose)
    _guard = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state_file = folder / "agentlab.json"
        self._lock = threading.RLock()
        self._others = FileLock(f"{folder / 'agentlab.lock'}", timeout=_WAIT)
        self._users = 0
        self._client: Any = None
        self._collections: dict[str, Any] = {}
        self._seen: tuple[int, int] | None = None

    @classmethod
    def enter(cls, folder: Path) -> _Store:
        with cls._guard:
            store = cls._all.setdefault(folder, cls(folder))
            store._users += 1
            return store

    def leave(self) -> None:
        """The last memory that leaves closes the client."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
            self._all.pop(self.folder, None)
        with self._lock:
            self._close()

    def prepare(self, embedder: str) -> None:
        """Begin a new folder, or see that the vectors of an old one are those of `embedder`."""
        with self.locked():
            if not self._state_file.exists():
                self._write_state({"embedder": embedder, "writes": 0, "moving": None})
            holds = self._read_state()["embedder"]
        if holds != embedder:
            raise ConfigError(
                f"{self.folder} holds vectors of {holds}, not of {embedder}: use the same embedder or another folder"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock:
            self.folder.stat()  # the lock would make a folder that is gone anew
            with self._others:
                yield

    def client(self) -> Any:
        """The client of the files as they are now; FileNotFoundError if they are gone."""
        state = self._read_state()
        database = self.folder / "chroma.sqlite3"
        if self._client is None or self._seen != (state["writes"], database.stat().st_ino):
            self._close()
            if state["writes"]:
                database.stat()
            self._client = open_client(self.folder)
            self._seen = (state["writes"], database.stat().st_ino)
        if state["moving"] is not None:
            self._finish(*state["moving"])
        return self._client

    def collection(self, name: str) -> Any:
        client = self.client()
        if name not in self._collections:
            self._collections[name] = client.get_or_create_collection(
                name, embedding_function=None, configuration={"hnsw": HNSW}
            )
        return self._collections[name]

    def drop(self, name: str) -> None:
        self._client.delete_collection(name)
        del self._collections[name]

    def announce(self, moving: list[str] | None, count: int = 1) -> int:
        """Say that `count` writes begin, before they do; returns the number of the first."""
        state = self._read_state()
        before = int(state["writes"])
        self._write_state({**state, "writes": before + count, "moving": moving})
        assert self._seen is not None
        self._seen = (before + count, self._seen[1])
        return before + 1

    def settle(self) -> None:
        self._write_state({**self._read_state(), "moving": None})

    def _finish(self, collection: str, old: str, new: str) -> None:
        rows = self._client.get_collection(collection, embedding_function=None)
        if rows.get(ids=[new], include=[])["ids"]:
            rows.delete(ids=[old])
        self.settle()

    def _read_state(self) -> dict[str, Any]:
        state = json.loads(self._state_file.read_text(encoding="utf-8"))
        return {key: state[key] for key in ("embedder", "writes", "moving")}

    def _write_state(self, state: dict[str, Any]) -> None:
        replace_file(self._state_file, json.dumps(state))

    def _close(self) -> None:
        self._collections.clear()
        if self._client is not None:
            client, self._client = self._client, None
            client.close()
