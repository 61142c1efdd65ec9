"""For flows that keep a history of their own: how far they have followed the conversation that the session stores."""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.core.messages import Message
from agentlab.core.slot import Slot
from agentlab.session.session import Session


@dataclass
class HistoryCursor:
    """Where in the stored conversation the flow is: `position` messages into the history's `history_version`."""

    history_version: int
    position: int = 0

    def read_new_messages(self, session: Session) -> tuple[bool, tuple[Message, ...]]:
        """Whether the session has forgotten what was said before; what was stored without the flow since it looked."""
        begins_anew = self.history_version != session.history.history_version
        if begins_anew:
            self.history_version, self.position = session.history.history_version, 0
        stored = session.load_conversation()
        unseen, self.position = stored[self.position :], len(stored)
        return begins_anew, unseen

    def save_own_message(self, session: Session, role: str, text: str, speaker: str | None = None) -> None:
        """Store a message that the flow knows already."""
        session.save_message(role, text, speaker=speaker)
        self.position += 1


CURSOR: Slot[HistoryCursor] = Slot(lambda session: HistoryCursor(session.history.history_version))
