"""Memory in one SQLite file, `memory.sqlite`: the default; for any number of users, threads and processes.

    memory = connect(Path("state"), embedder, user="ann")

The search is exact and runs over a copy of the user's vectors in this process, which is read anew whenever somebody
else has written to the file. A write is one transaction, on disk before it returns.
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


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> SqliteMemory:
    """Open or create `where`/memory.sqlite; ConfigError if it is no such file or was made with another embedder."""
    path = Path(where) / KEPT_IN
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        open_regular_file(path).close()  # a pipe would hold up SQLite for ever
        memory = SqliteMemory(path, embedder, user)
        memory.prepare()
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{path}: cannot be opened as a memory ({error})") from error
    return memory


class SqliteMemory(StoredMemory):
    failures = (sqlite3.Error, OSError)

    def __init__(self, path: Path, embedder: Embedder, user: str) -> None:
        super().__init__("sqlite", str(path), embedder, user)
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._table = VectorTable(self)
        self._version: int | None = None
        """Of the database when the table was read; None where it has to be read anew."""

    def prepare(self) -> None:
        """Create the tables where there are none, and see that the vectors are of this embedder."""
        database = self._open()
        database.executescript(_SCHEMA)
        if "about" not in {column["name"] for column in database.execute("PRAGMA table_info(facts)")}:
            database.execute("ALTER TABLE facts ADD COLUMN about TEXT NOT NULL DEFAULT ''")
        database.execute("INSERT OR IGNORE INTO about VALUES (1, ?)", (self.embedder.name,))
        (sound,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {sound}; take it from a copy, or delete it to begin anew")
        (holds,) = database.execute("SELECT embedder FROM about").fetchone()
        check_embedder(self._where, holds, self.embedder)

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now; FileNotFoundError if it is gone."""
        inode = self._path.stat().st_ino
        journal = self._path.with_name(f"{KEPT_IN}-journal")
        if journal.exists() and not journal.is_file():  # SQLite would wait at a pipe for ever
            raise OSError(f"{journal.name} beside it is no ordinary file; delete it")
        if self._database is not None and inode == self._inode:
            return self._database
        self._release()
        database = sqlite3.connect(self._path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        database.row_factory = sqlite3.Row
        self._database, self._inode = database, inode
        # No write-ahead log: its index is mapped into memory, and if that file is cut off, the process is ended.
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
            # Read before the rows: if somebody commits in between, the next operation looks again.
            (version,) = database.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                self._read(database)
                self._version = version
            yield self._table
            database.execute("COMMIT")
        except BaseException:
            # What the file does not hold must not stay in the copy.
            self._version = None
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _read(self, database: sqlite3.Connection) -> None:
        held = database.execute(
            "SELECT id, text, created, vector, about FROM facts WHERE user = ? ORDER BY number", (self.user,)
        ).fetchall()
        try:
            self._table.load([stored_fact(dict(row)) for row in held], [from_bytes(row["vector"]) for row in held])
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
