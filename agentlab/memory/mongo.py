"""Memory in MongoDB, on the server at `MONGODB_URI`.

    memory = connect("agentlab", embedder, user="ann")          # "agentlab" is the name of the store in the database

It needs the extra `mongo`. A fact is a document. The search is exact and runs over a copy of the user's facts in this
process. The backend reads the copy again after another process has written. A file lock orders the writers of one
machine. Two machines that add the same text at the same moment both store it.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from agentlab.core.errors import ConfigError, needs
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.memory.base import LOCK_SECONDS, Rows, StoredMemory, Vector, check_embedder, from_bytes, stored_fact
from agentlab.memory.exact import VectorTable

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.collection import Collection

    Documents = Collection[dict[str, Any]]

_DATABASE = "agentlab"
_TIMEOUT = 10.0
"""Seconds for one operation."""
_PING_TIMEOUT = 1.9
"""Seconds until a server counts as unavailable; every operation begins with a ping."""
_DUMP = re.compile(r" \(configured timeouts|, Timeout: |, full error: ")
"""Start of what the driver reports of itself behind an error."""
_HEADER = 2
"""Bytes before the numbers in BSON's float32 vector."""


def connect(location: str | Path, embedder: Embedder, *, user: str = "user", uri: str | None = None) -> MongoMemory:
    """Return the store `location` on the server at `uri` or MONGODB_URI, in the URI's database or `agentlab`.

    The first operation connects. Raises ConfigError without a usable URI and MissingExtra without pymongo.
    """
    with needs("the memory backend mongo", "mongo"):
        import pymongo
        import pymongo.errors
    uri = uri or os.environ.get("MONGODB_URI")
    if not uri:
        raise ConfigError("the memory backend mongo needs a server: set MONGODB_URI, as in mongodb://127.0.0.1:27017")
    try:
        client: MongoClient[dict[str, Any]] = pymongo.MongoClient(uri, timeoutMS=int(_TIMEOUT * 1000), connect=False)
        return MongoMemory(client, str(location), embedder, user)
    except (pymongo.errors.PyMongoError, ValueError) as error:
        # The address and the driver's message may contain a password.
        raise ConfigError(f"MONGODB_URI is not an address MongoDB can use ({type(error).__name__})") from None


class MongoMemory(StoredMemory):
    def __init__(self, client: MongoClient[dict[str, Any]], store: str, embedder: Embedder, user: str) -> None:
        from pymongo import WriteConcern

        super().__init__("mongo", f"the server, store {store}", embedder, user)
        self._owner = json.dumps([store, self.user])
        self._client = client
        # A write returns once the fact is on disk.
        database = client.get_default_database(_DATABASE, write_concern=WriteConcern("majority", j=True))
        self._documents: Documents = database["agentlab_memory"]
        name = hashlib.sha256(f"{getpass.getuser()} {self._owner}".encode()).hexdigest()[:40]
        self._writers = FileLock(Path(tempfile.gettempdir(), f"agentlab-memory-{name}.lock"), timeout=LOCK_SECONDS)
        self._table = VectorTable(self)
        self._numbers: list[int] | None = None
        """Numbers of the facts in the table. Numbers are never reused, so other numbers mean other facts."""

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        import pymongo
        from pymongo.errors import PyMongoError

        try:
            with self._writers if write else nullcontext():
                with pymongo.timeout(_PING_TIMEOUT):
                    self._client.admin.command("ping")
                self._refresh()
                yield self._table
        except PyMongoError as error:
            raise OSError(_DUMP.split(str(error))[0] or type(error).__name__) from error

    async def drop(self) -> None:
        await super().drop()
        Path(self._writers.lock_file).unlink(missing_ok=True)

    def _release(self) -> None:
        self._client.close()

    def _refresh(self) -> None:
        """Read the facts again if another process has changed them."""
        if self._numbers is None:
            self._documents.create_index([("owner", 1), ("id", 1)], unique=True)
            self._documents.create_index([("owner", 1), ("number", 1)])
        own = {"owner": self._owner}
        numbers = [row["number"] for row in self._documents.find(own, {"_id": 0, "number": 1}).sort("number", 1)]
        if numbers != self._numbers:
            rows = list(self._documents.find(own).sort("number", 1))
            for row in rows:
                check_embedder(self._location, row.get("embedder", self.embedder.name), self.embedder)
            self._table.load([stored_fact(row) for row in rows], [from_bytes(row["vector"][_HEADER:]) for row in rows])
            self._numbers = [row["number"] for row in rows]

    def write_rows(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> None:
        pairs = zip(facts, vectors, strict=True)
        fresh = [self._document(*pair, number) for number, pair in enumerate(pairs, start=time.time_ns())]
        if replaces is None:
            self._documents.insert_many(fresh)
            self._numbers = [*(self._numbers or ()), *(document["number"] for document in fresh)]
        else:
            # With an update in place, the store has one of the two facts at any moment.
            self._documents.update_one({"owner": self._owner, "id": {"$eq": replaces}}, {"$set": fresh[0]})

    def erase_rows(self, fact_id: str | None) -> None:
        by_id = {} if fact_id is None else {"id": {"$eq": fact_id}}
        self._documents.delete_many({"owner": self._owner, **by_id})

    def _document(self, fact: Fact, vector: Vector, number: int) -> dict[str, Any]:
        from bson.binary import Binary, BinaryVectorDtype

        return {
            "owner": self._owner,
            "id": fact.id,
            "number": number,
            "text": fact.text,
            # Text, because a BSON date has no time zone and only milliseconds.
            "created": fact.created.isoformat(),
            "about": fact.about,
            "vector": Binary.from_vector(vector.tolist(), BinaryVectorDtype.FLOAT32),
            "embedder": self.embedder.name,
        }
