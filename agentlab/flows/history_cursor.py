"""Cursor into the stored conversation, for flows with a history of their own."""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.core.messages import Message
from agentlab.core.state_key import StateKey
from agentlab.session.session import Session


@dataclass
class HistoryCursor:
    """The flow has read `position` messages of the stored conversation with this `history_version`."""

    history_version: int
    position: int = 0

    def read_new_messages(self, session: Session) -> tuple[bool, tuple[Message, ...]]:
        """Return True if the session has deleted its history, and the messages stored since the last read."""
        was_reset = self.history_version != session.history.history_version
        if was_reset:
            self.history_version, self.position = session.history.history_version, 0
        stored = session.load_conversation()
        unseen, self.position = stored[self.position :], len(stored)
        return was_reset, unseen

    def save_own_message(self, session: Session, role: str, text: str, speaker: str | None = None) -> None:
        """Store a message that the flow's own history already contains."""
        session.save_message(role, text, speaker=speaker)
        self.position += 1


CURSOR: StateKey[HistoryCursor] = StateKey(lambda session: HistoryCursor(session.history.history_version))
