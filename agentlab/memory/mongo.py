"""Memory in MongoDB, at `MONGODB_URI`: for many machines at once.

    memory = connect("agentlab", embedder, user="ann")          # "agentlab" is the name of the store in the database

Needs the extra `mongo`. A server with vector search (Atlas) is asked by `$vectorSearch`, as soon as its index is ready;
such an index lags behind the writes, so the newest facts are always compared here as well, and the scores are computed
here. Any other server is searched exactly, over a copy of the user's vectors in this process. That copy is brought up
to date when the version of the user's facts, one small document, has changed.

Writers take turns by a lease in that document, which ends by itself if its holder dies. It works on a single server as
on a replica set, where a transaction would not.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentlab.core.errors import ConfigError, MemoryUnavailable, MissingExtra
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory
from agentlab.memory.base import Rows, StoredMemory, Vector, checked_name, rank
from agentlab.memory.exact import Mirror, Shelf, Snapshot

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.collection import Collection

    Documents = Collection[dict[str, Any]]

_DATABASE = "agentlab"
_TIMEOUT = 10.0
"""Seconds for one operation, finding the server included."""
_LEASE = 30.0
"""Seconds after which a writer that did not come back is taken for dead: three operations.

Counted by the clocks of the clients, which may differ by a few seconds.
"""
_PAUSE = 0.01
_LOOK = 5.0
"""Seconds between two looks whether the search index is ready."""
_MARGIN = 8
_NEWEST = 200
"""Facts so new that the search index may not have them yet."""
_CANDIDATES = 200
_IN_ONE_TURN = 1_000_000
"""Numbers that belong to one turn of a writer, so that a later turn has the higher ones."""
_HEADER = 2
"""Bytes of BSON's float32 vector before its numbers."""
_FIELDS = {"_id": 0, "number": 1, "id": 1, "text": 1, "created": 1, "vector": 1}


def connect(
    where: str | Path,
    embedder: Embedder,
    *,
    user: str = "user",
    uri: str | None = None,
    vector_search: bool | None = None,
) -> MongoMemory:
    """The store named `where` on the server at `uri` or MONGODB_URI, in the URI's database or `agentlab`.

    `vector_search`: True to insist on it, False to search here; None takes it where the server has it. The server is
    not asked before the first use. ConfigError without a usable URI, MissingExtra without pymongo.
    """
    try:
        import pymongo
        import pymongo.errors
    except ImportError as error:
        raise MissingExtra("the memory backend mongo", "mongo") from error
    uri = uri or os.environ.get("MONGODB_URI")
    if not uri:
        raise ConfigError("the memory backend mongo needs a server: set MONGODB_URI, as in mongodb://127.0.0.1:27017")
    try:
        client: MongoClient[dict[str, Any]] = pymongo.MongoClient(
            uri, timeoutMS=int(_TIMEOUT * 1000), serverSelectionTimeoutMS=int(_TIMEOUT * 1000), connect=False
        )
        return MongoMemory(client, str(where), embedder, user, vector_search)
    except (pymongo.errors.PyMongoError, ValueError) as error:
        # The address may hold a password, and so may what the driver says about it.
        raise ConfigError(f"MONGODB_URI is not an address MongoDB can use ({type(error).__name__})") from None


class MongoMemory(StoredMemory):
    name = "mongo"

    def __init__(
        self,
        client: MongoClient[dict[str, Any]],
        store: str,
        embedder: Embedder,
        user: str,
        vector_search: bool | None,
    ) -> None:
        from pymongo import WriteConcern
        from pymongo.errors import PyMongoError

        super().__init__(f"the server, store {store}", embedder, user)
        self.failures = (PyMongoError, OSError)
        self._owner = json.dumps([checked_name("the store of a memory", store), self.user])
        self._client = client
        # A fact is on disk before anybody is told that it is stored.
        database = client.get_default_database(_DATABASE, write_concern=WriteConcern("majority", j=True))
        self._documents: Documents = database["agentlab_memory"]
        self._turns: Documents = database["agentlab_memory_turns"]
        self._lock = threading.Lock()
        self._vector_search = vector_search
        self._prepared = False
        self._index: str | None = None
        self._look_at = 0.0
        self._copy = _ScanRows(self._documents, self._owner)
        self._seen: int | None = None

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._lock:
            if not self._prepared:
                self._prepare()
            elif self._index is None and self._vector_search is not False and time.monotonic() >= self._look_at:
                self._index = self._search_index()
            if write:
                with self._turn() as state:
                    yield self._rows(state, unchanged_since=state["version"] - 1)
            else:
                state = self._state()
                yield self._rows(state, unchanged_since=state["version"])

    def _state(self) -> dict[str, Any]:
        state = self._turns.find_one({"_id": self._owner})
        if state is None:
            raise MemoryUnavailable("the mongo memory is gone: its documents were deleted")
        return state

    def _rows(self, state: Mapping[str, Any], *, unchanged_since: int) -> _ScanRows | _IndexRows:
        first = state["version"] * _IN_ONE_TURN
        if self._index is not None:
            return _IndexRows(self._documents, self._owner, self._index, first)
        self._copy.first = first
        if self._seen != unchanged_since:
            self._seen = None
            self._copy.sync()
        # While somebody writes, what was read may lack what is just being written under this version.
        self._seen = state["version"] if state["holder"] is None else None
        return self._copy

    @contextmanager
    def _turn(self) -> Iterator[dict[str, Any]]:
        """Be the only writer of this user's facts; the version counts turns begun and ended."""
        from pymongo import ReturnDocument

        holder, deadline = uuid.uuid4().hex, time.monotonic() + _LEASE + _TIMEOUT
        while True:
            now = time.time()
            state = self._turns.find_one_and_update(
                {"_id": self._owner, "until": {"$lt": now}},
                {"$set": {"until": now + _LEASE, "holder": holder}, "$inc": {"version": 1}},
                return_document=ReturnDocument.AFTER,
            )
            if state is not None:
                break
            self._state()
            if time.monotonic() > deadline:
                raise MemoryUnavailable("the mongo memory cannot be written: another writer does not come to an end")
            time.sleep(_PAUSE)
        try:
            yield state
        except BaseException:
            self._seen = None
            raise
        finally:
            ended = self._turns.find_one_and_update(
                {"_id": self._owner, "holder": holder},
                {"$set": {"until": 0.0, "holder": None}, "$inc": {"version": 1}},
                return_document=ReturnDocument.AFTER,
            )
        self._seen = ended["version"] if ended is not None else None

    def _prepare(self) -> None:
        from pymongo.errors import DuplicateKeyError

        self._documents.create_index([("owner", 1), ("id", 1)], unique=True)
        self._documents.create_index([("owner", 1), ("number", 1)])
        fresh = {"_id": self._owner, "embedder": self.embedder.name, "version": 0, "holder": None, "until": 0.0}
        try:
            self._turns.insert_one(fresh)
        except DuplicateKeyError:
            state = self._turns.find_one({"_id": self._owner}) or fresh
            if state["embedder"] != self.embedder.name:
                raise ConfigError(
                    f"the mongo memory {self._owner} holds vectors of {state['embedder']}, not of {self.embedder.name}:"
                    " use the same embedder or another store"
                ) from None
        if self._vector_search is not False:
            self._index = self._search_index()
        self._prepared = True

    def _search_index(self) -> str | None:
        """The name of the server's search index once it answers; it is asked to build one where there is none."""
        from pymongo.errors import OperationFailure
        from pymongo.operations import SearchIndexModel

        name = f"agentlab_memory_{self.embedder.dimensions}"
        fields = [
            {"type": "vector", "path": "vector", "numDimensions": self.embedder.dimensions, "similarity": "cosine"},
            {"type": "filter", "path": "owner"},
        ]
        try:
            found = list(self._documents.list_search_indexes(name))
            if not found:
                model = SearchIndexModel(definition={"fields": fields}, name=name, type="vectorSearch")
                self._documents.create_search_index(model)
        except OperationFailure as error:
            if self._vector_search:
                raise ConfigError(f"the server has no vector search: {error.details or error}"[:300]) from error
            self._vector_search = False
            return None
        self._look_at = time.monotonic() + _LOOK
        return name if any(index.get("queryable") for index in found) else None

    def _snapshot(self) -> Memory:
        with self._facts(write=False) as rows:
            shelf = rows.load() if isinstance(rows, _IndexRows) else self._copy.shelf.copy()
            return Snapshot(self.name, self.embedder, self.user, shelf)

    async def drop(self) -> None:
        try:
            await self.clear()
            await self._run(lambda: self._turns.delete_one({"_id": self._owner}))
        finally:
            await self.close()

    def _release(self) -> None:
        with self._lock:
            self._client.close()


class _ScanRows(Mirror):
    """A user's documents, copied to a shelf and searched there."""

    def __init__(self, documents: Documents, owner: str) -> None:
        super().__init__()
        self._documents = documents
        self._owner = owner
        self.first = 0

    def sync(self) -> None:
        """Bring the shelf to what the server holds; what it has already is not fetched again."""
        alive = {found["number"] for found in self._documents.find({"owner": self._owner}, {"_id": 0, "number": 1})}
        newer = self._documents.find({"owner": self._owner, "number": {"$gt": self.shelf.newest}}, _FIELDS)
        self.shelf.sync(alive, ((found["number"], *_read(found)) for found in newer.sort("number", 1)))

    def write(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> Sequence[int]:
        _write(self._documents, self._owner, self.first, facts, vectors, replaces)
        return range(self.first, self.first + len(facts))

    def erase(self, fact_id: str | None) -> None:
        _erase(self._documents, self._owner, fact_id)


class _IndexRows:
    """A user's documents, searched by the server."""

    def __init__(self, documents: Documents, owner: str, index: str, first: int) -> None:
        self._documents = documents
        self._owner = owner
        self._index = index
        self._first = first

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        wanted = count + _MARGIN
        stage = {
            "index": self._index,
            "path": "vector",
            "queryVector": vector.tolist(),
            "filter": {"owner": {"$eq": self._owner}},
            "numCandidates": max(_CANDIDATES, 10 * wanted),
            "limit": wanted,
        }
        found = list(self._documents.aggregate([{"$vectorSearch": stage}, {"$project": _FIELDS}]))
        found += self._documents.find({"owner": self._owner}, _FIELDS).sort("number", -1).limit(_NEWEST)
        facts = {document["number"]: _read(document) for document in sorted(found, key=lambda d: int(d["number"]))}
        if not facts:
            return []
        return rank([fact for fact, _ in facts.values()], np.stack([row for _, row in facts.values()]), vector, count)

    def get(self, fact_id: str) -> Fact | None:
        found = self._documents.find_one({"owner": self._owner, "id": {"$eq": fact_id}}, _FIELDS)
        return None if found is None else _read(found)[0]

    def all(self) -> list[Fact]:
        return self.load().all()

    def load(self) -> Shelf:
        shelf = Shelf()
        for found in self._documents.find({"owner": self._owner}, _FIELDS).sort("number", 1):
            shelf.append(found["number"], *_read(found))
        return shelf

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        _write(self._documents, self._owner, self._first, facts, vectors, replaces)

    def remove(self, fact_id: str) -> None:
        _erase(self._documents, self._owner, fact_id)

    def clear(self) -> None:
        _erase(self._documents, self._owner, None)


def _write(
    documents: Documents,
    owner: str,
    first: int,
    facts: Sequence[Fact],
    vectors: Sequence[Vector],
    replaces: str | None,
) -> None:
    """Insert facts; one in place of another becomes that document, so that there is always one of the two."""
    from bson.binary import Binary, BinaryVectorDtype

    fresh = [
        {
            "id": fact.id,
            "number": number,
            "text": fact.text,
            # As text: a date of BSON keeps milliseconds and no time zone.
            "created": fact.created.isoformat(),
            "vector": Binary.from_vector(vector.tolist(), BinaryVectorDtype.FLOAT32),
        }
        for number, (fact, vector) in enumerate(zip(facts, vectors, strict=True), start=first)
    ]
    if replaces is None:
        documents.insert_many([{"owner": owner, **fields} for fields in fresh])
    else:
        documents.update_one({"owner": owner, "id": {"$eq": replaces}}, {"$set": fresh[0]})


def _erase(documents: Documents, owner: str, fact_id: str | None) -> None:
    documents.delete_many({"owner": owner} if fact_id is None else {"owner": owner, "id": {"$eq": fact_id}})


def _read(found: Mapping[str, Any]) -> tuple[Fact, Vector]:
    vector = np.frombuffer(bytes(found["vector"])[_HEADER:], dtype="<f4").astype(np.float32)
    return Fact(id=found["id"], text=found["text"], created=datetime.fromisoformat(found["created"])), vector
