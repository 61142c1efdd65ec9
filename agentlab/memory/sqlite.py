"""Memory in one SQLite file, `memory.sqlite`, for any number of users, threads and processes; the default backend.

    memory = connect(Path("state"), embedder, user="ann")

The search is exact and runs over a copy of the user's vectors in this process. The backend reads the copy again after
another connection has written to the file. A write is one transaction, on disk before it returns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentlab.core.errors import ConfigError
from agentlab.core.files import open_regular_file
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.memory.base import LOCK_SECONDS, Rows, StoredMemory, Vector, check_embedder, from_bytes, stored_fact
from agentlab.memory.exact import VectorTable

KEPT_IN = "memory.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    user TEXT NOT NULL,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    created TEXT NOT NULL,
    vector BLOB NOT NULL,
    about TEXT NOT NULL DEFAULT '',
    UNIQUE (user, id)
);
CREATE INDEX IF NOT EXISTS facts_of_user ON facts (user, number);
CREATE TABLE IF NOT EXISTS about (one INTEGER PRIMARY KEY CHECK (one = 1), embedder TEXT NOT NULL);
"""


def connect(location: str | Path, embedder: Embedder, *, user: str = "user") -> SqliteMemory:
    """Open or create `location`/memory.sqlite; raise ConfigError if it cannot be used or has another embedder."""
    path = Path(location) / KEPT_IN
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        open_regular_file(path).close()  # SQLite would wait for a pipe forever
        memory = SqliteMemory(path, embedder, user)
        memory.prepare()
    except SqliteMemory.failures as error:
        raise ConfigError(f"{path}: cannot be opened as a memory ({error})") from error
    return memory


class SqliteMemory(StoredMemory):
    failures = (sqlite3.Error, OSError, UnicodeDecodeError)
    """The last one is raised for a message of SQLite that quotes damaged text."""

    def __init__(self, path: Path, embedder: Embedder, user: str) -> None:
        super().__init__("sqlite", str(path), embedder, user)
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._table = VectorTable(self)
        self._version: int | None = None
        """SQLite's `data_version` when the table was read; None if the table is outdated."""

    def prepare(self) -> None:
        """Create missing tables and check the embedder of the stored vectors."""
        database = self._open()
        database.executescript(_SCHEMA)
        if "about" not in {column["name"] for column in database.execute("PRAGMA table_info(facts)")}:
            database.execute("ALTER TABLE facts ADD COLUMN about TEXT NOT NULL DEFAULT ''")
        database.execute("INSERT OR IGNORE INTO about VALUES (1, ?)", (self.embedder.name,))
        (status,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if status != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {status}; restore it from a copy, or delete it to start empty")
        (stored_name,) = database.execute("SELECT embedder FROM about").fetchone()
        check_embedder(self._location, stored_name, self.embedder)

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the current file; raise FileNotFoundError if it is gone."""
        inode = self._path.stat().st_ino
        journal = self._path.with_name(f"{KEPT_IN}-journal")
        if journal.exists() and not journal.is_file():  # SQLite would wait for a pipe forever
            raise OSError(f"{journal.name} beside it is no ordinary file; delete it")
        if self._database is not None and inode == self._inode:
            return self._database
        self._release()
        database = sqlite3.connect(self._path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        database.row_factory = sqlite3.Row
        self._database, self._inode = database, inode
        # No write-ahead log: SQLite maps its index into memory, and a truncated index file ends the process.
        database.execute("PRAGMA journal_mode=TRUNCATE")
        database.execute("PRAGMA mmap_size=0")
        return database

    def _release(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database, self._version = None, None

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        database = self._open()
        database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            # Read the version before the rows: after a commit in between, the next operation reads again.
            (version,) = database.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._read(database)
                self._version = version
            yield self._table
            database.execute("COMMIT")
        except BaseException:
            # The copy may hold facts that the file does not.
            self._version = None
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _read(self, database: sqlite3.Connection) -> None:
        rows = database.execute(
            "SELECT id, text, created, vector, about FROM facts WHERE user = ? ORDER BY number", (self.user,)
        ).fetchall()
        try:
            self._table.load([stored_fact(dict(row)) for row in rows], [from_bytes(row["vector"]) for row in rows])
        except (ValueError, TypeError, OverflowError) as problem:
            raise sqlite3.DatabaseError(f"a fact is damaged ({problem})") from None

    def write_rows(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> None:
        assert self._database is not None, "a table is written to within a transaction"
        if replaces is not None:
            self.erase_rows(replaces)
        self._database.executemany(
            "INSERT INTO facts (user, id, text, created, vector, about) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self.user, fact.id, fact.text, fact.created.isoformat(), vector.astype("<f4").tobytes(), fact.about)
                for fact, vector in zip(facts, vectors, strict=True)
            ],
        )

    def erase_rows(self, fact_id: str | None) -> None:
        assert self._database is not None, "a table is written to within a transaction"
        self._database.execute(
            "DELETE FROM facts WHERE user = :user AND (:id IS NULL OR id = :id)", {"user": self.user, "id": fact_id}
        )
