"""Memory in one SQLite file, `memory.sqlite`, for any number of users, threads and processes.

    memory = connect(Path("state"), embedder, user="ann")

The search is exact and runs over a copy of the user's vectors in this process, which is brought up to date whenever
somebody else has written to the file. A write is one transaction, on disk before it returns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory
from agentlab.memory.base import Rows, StoredMemory, Vector, pack, unpack
from agentlab.memory.exact import Mirror, Snapshot

_WAIT = 30.0
"""Seconds to wait for another writer."""

# AUTOINCREMENT: a number is never used again, so a higher one always means a later fact.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    user TEXT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    created TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (user, id)
);
CREATE INDEX IF NOT EXISTS facts_of_user ON facts (user, number);
CREATE TABLE IF NOT EXISTS about (one INTEGER PRIMARY KEY CHECK (one = 1), embedder TEXT NOT NULL);
"""


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> SqliteMemory:
    """Open or create `where`/memory.sqlite; ConfigError if it is no such file or was made with another embedder."""
    path = Path(where) / "memory.sqlite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        memory = SqliteMemory(path, embedder, user)
        memory.prepare()
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{path}: cannot be opened as a memory ({error})") from error
    return memory


class SqliteMemory(StoredMemory):
    name = "sqlite"
    failures = (sqlite3.Error, OSError)

    def __init__(self, path: Path, embedder: Embedder, user: str) -> None:
        super().__init__(str(path), embedder, user)
        self._path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._rows: _SqliteRows | None = None

    def prepare(self) -> None:
        """Create the tables where there are none, and see that the vectors are of this embedder."""
        with self._lock:
            database = self._open()
            database.executescript(_SCHEMA)
            database.execute("INSERT OR IGNORE INTO about VALUES (1, ?)", (self.embedder.name,))
            (holds,) = database.execute("SELECT embedder FROM about").fetchone()
        if holds != self.embedder.name:
            self._release()
            raise ConfigError(
                f"{self._path} holds vectors of {holds}, not of {self.embedder.name}:"
                " use the same embedder or another folder"
            )

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now; FileNotFoundError if it is gone."""
        inode = self._path.stat().st_ino
        if self._database is not None and inode == self._inode:
            return self._database
        self._let_go()
        database = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        self._database, self._inode = database, inode
        database.execute("PRAGMA journal_mode=WAL")
        return database

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database, self._rows = None, None

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._lock:
            database = self._open()
            database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                rows = self._rows = self._rows or _SqliteRows(database, self.user)
                rows.sync()
                yield rows
                database.execute("COMMIT")
            except BaseException:
                # What the file does not hold must not stay in the copy.
                self._rows = None
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def _snapshot(self) -> Memory:
        with self._facts(write=False):
            assert self._rows is not None
            return Snapshot(self.name, self.embedder, self.user, self._rows.shelf.copy())

    def _release(self) -> None:
        with self._lock:
            self._let_go()


class _SqliteRows(Mirror):
    """A user's rows of the file, inside a transaction."""

    def __init__(self, database: sqlite3.Connection, user: str) -> None:
        super().__init__()
        self._database = database
        self._user = user
        self._version: int | None = None

    def sync(self) -> None:
        """Bring the shelf to what the file holds."""
        # Read before the rows: if somebody commits in between, the next operation looks again.
        (version,) = self._database.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        alive = {n for (n,) in self._database.execute("SELECT number FROM facts WHERE user = ?", (self._user,))}
        newer = self._database.execute(
            "SELECT number, id, text, created, vector FROM facts WHERE user = ? AND number > ? ORDER BY number",
            (self._user, self.shelf.newest),
        )
        self.shelf.sync(
            alive,
            (
                (number, Fact(id=fact_id, text=text, created=datetime.fromisoformat(created)), unpack(vector))
                for number, fact_id, text, created, vector in newer
            ),
        )
        self._version = version

    def write(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> Sequence[int]:
        if replaces is not None:
            self.erase(replaces)
        return [self._insert(fact, vector) for fact, vector in zip(facts, vectors, strict=True)]

    def _insert(self, fact: Fact, vector: Vector) -> int:
        number = self._database.execute(
            "INSERT INTO facts (user, id, text, created, vector) VALUES (?, ?, ?, ?, ?)",
            (self._user, fact.id, fact.text, fact.created.isoformat(), pack(vector)),
        ).lastrowid
        assert number is not None
        return number

    def erase(self, fact_id: str | None) -> None:
        self._database.execute(
            "DELETE FROM facts WHERE user = :user AND (:id IS NULL OR id = :id)", {"user": self._user, "id": fact_id}
        )
