"""Stored conversations: every message points at the one it replies to; a chain is read back along these links.

A chat keeps its messages in SQLite, in its folder; a conversation that nobody comes back to keeps them in a list.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Citation, Message, to_json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    reply_to INTEGER REFERENCES messages (id),
    role TEXT NOT NULL CHECK (role IN ('user', 'agent', 'system')),
    speaker TEXT,
    text TEXT NOT NULL,
    citations TEXT NOT NULL DEFAULT '[]',
    created TEXT
);
CREATE INDEX IF NOT EXISTS messages_of_conversation ON messages (conversation, id);
"""

_CHAIN = """
WITH RECURSIVE chain (id, reply_to, role, speaker, text, depth) AS (
    SELECT id, reply_to, role, speaker, text, 1 FROM messages WHERE id = :tip
    UNION ALL
    SELECT m.id, m.reply_to, m.role, m.speaker, m.text, depth + 1
    FROM messages m JOIN chain ON m.id = chain.reply_to
    WHERE :limit IS NULL OR depth < :limit
)
SELECT role, speaker, text FROM chain ORDER BY depth DESC
"""


_ROLES = ("user", "agent", "system")


class ConversationList:
    """The messages of one conversation, gone with it."""

    def __init__(self) -> None:
        self._saved: list[tuple[Message, int | None]] = []

    def save(
        self,
        conversation: str,
        role: str,
        text: str,
        *,
        reply_to: int | None = None,
        speaker: str | None = None,
        citations: Sequence[Citation] = (),
        created: datetime | None = None,
    ) -> int:
        """As `ConversationDatabase.save`; raises ValueError for a role that is none."""
        if role not in _ROLES:
            raise ValueError(f"a stored message is of {', '.join(_ROLES)}, not of {role!r}")
        message = Message(role=role, text=_storable(text), name=speaker)  # type: ignore[arg-type]
        self._saved.append((message, reply_to))
        return len(self._saved)

    def chain(self, message_id: int, limit: int | None = None) -> tuple[Message, ...]:
        """As `ConversationDatabase.chain`."""
        found: list[Message] = []
        at: int | None = message_id
        while at is not None and (limit is None or len(found) < limit):
            message, at = self._saved[at - 1]
            found.append(message)
        return tuple(reversed(found))

    def last_message(self, conversation: str) -> int | None:
        return len(self._saved) or None


class ConversationDatabase:
    """Stored messages of any number of conversations; `path` is a file, or `:memory:`.

    Raises ConfigError where the file cannot be opened, is no such database, or no longer one.
    """

    def __init__(self, path: str | Path = ":memory:") -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as problem:
            raise ConfigError(f"{path}: cannot be opened as a conversation database ({problem})") from None
        # A database goes with the conversation it was made for, of which nobody says that it has ended.
        weakref.finalize(self, self._db.close)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """A file that somebody damaged meanwhile is an error of one line."""
        try:
            yield
        except sqlite3.Error as problem:
            raise ConfigError(f"{self._path}: the stored conversation cannot be used ({problem})") from None

    def save(
        self,
        conversation: str,
        role: str,
        text: str,
        *,
        reply_to: int | None = None,
        speaker: str | None = None,
        citations: Sequence[Citation] = (),
        created: datetime | None = None,
    ) -> int:
        """Store a message and return its id, to be given as `reply_to` of the next one."""
        values = (
            conversation,
            reply_to,
            role,
            speaker,
            _storable(text),
            json.dumps(to_json(tuple(citations))),
            created.isoformat() if created else None,
        )
        with self._ours(), self._db:
            cursor = self._db.execute(
                "INSERT INTO messages (conversation, reply_to, role, speaker, text, citations, created)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def chain(self, message_id: int, limit: int | None = None) -> tuple[Message, ...]:
        """The messages that lead up to `message_id`, itself included: oldest first, the last `limit` of them."""
        if limit is not None and limit < 1:
            return ()
        with self._ours():
            rows = self._db.execute(_CHAIN, {"tip": message_id, "limit": limit}).fetchall()
        return tuple(Message(role=role, text=text, name=speaker) for role, speaker, text in rows)

    def messages(self, conversation: str) -> list[dict[str, Any]]:
        """All stored messages of a conversation in the order they were saved."""
        with self._ours():
            found = self._db.execute(
                "SELECT id, reply_to, role, speaker, text, citations, created FROM messages"
                " WHERE conversation = ? ORDER BY id",
                (conversation,),
            )
            columns, rows = [column[0] for column in found.description], found.fetchall()
        return [{**dict(zip(columns, row, strict=True)), "citations": json.loads(row[5])} for row in rows]

    def last_message(self, conversation: str) -> int | None:
        with self._ours():
            row = self._db.execute("SELECT max(id) FROM messages WHERE conversation = ?", (conversation,)).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        self._db.close()


def _storable(text: str) -> str:
    """Without half a surrogate pair, which a model may write and SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
