"""The stored messages of one conversation, as its flow saved them, in their order.

A chat keeps them with its turns; those of a comparison are gone with the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.messages import Message

_ROLES = ("user", "agent", "system")


class History:
    """`messages` are those since the history was last forgotten, `history_version` says how often that was."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = list(messages)
        self.history_version = 0

    def save(self, role: str, text: str, speaker: str | None = None) -> None:
        """Add a message as the last one; raises ValueError for a role that is none."""
        if role not in _ROLES:
            raise ValueError(f"a stored message is of {', '.join(_ROLES)}, not of {role!r}")
        # Without half a surrogate pair, which a model may write and no file takes.
        storable = text if text.isascii() else text.encode("utf-8", "replace").decode()
        self.messages.append(Message(role=role, text=storable, name=speaker))  # type: ignore[arg-type]

    def chain(self, limit: int | None = None) -> tuple[Message, ...]:
        """The messages, oldest first, the last `limit` of them."""
        begin = 0 if limit is None else max(0, len(self.messages) - limit)
        return tuple(self.messages[begin:])

    def forget(self) -> None:
        """What was said is no longer read: a flow that keeps a history of its own then forgets that, too."""
        self.messages.clear()
        self.history_version += 1
