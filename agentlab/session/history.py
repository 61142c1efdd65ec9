"""Stored messages of one conversation, in the order in which its flow saves them.

A chat stores them on disk with its turns; a run drops them with the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.messages import Message

_ROLES = ("user", "agent", "system")


class History:
    """Messages since the history was last forgotten; `history_version` counts how often it was forgotten."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = list(messages)
        self.history_version = 0

    def save(self, role: str, text: str, speaker: str | None = None) -> None:
        """Append a message; raises ValueError for an unknown role."""
        if role not in _ROLES:
            raise ValueError(f"unknown role {role!r}; a stored message has one of {', '.join(_ROLES)}")
        # Replace half surrogate pairs: a model may write one, but no file can store it.
        storable = text if text.isascii() else text.encode("utf-8", "replace").decode()
        self.messages.append(Message(role=role, text=storable, name=speaker))  # type: ignore[arg-type]

    def chain(self, limit: int | None = None) -> tuple[Message, ...]:
        """Return the last `limit` messages (None: all), oldest first."""
        start = 0 if limit is None else max(0, len(self.messages) - limit)
        return tuple(self.messages[start:])

    def forget(self) -> None:
        """Delete the messages; a flow with a history of its own sees the new version and deletes it too."""
        self.messages.clear()
        self.history_version += 1
