"""For flows that keep a history of their own: how far they have followed the conversation that the session stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentlab.core.messages import Citation, Message
from agentlab.session.session import Session


@dataclass
class HistoryCursor:
    """Where in the stored conversation the flow is: `position` messages into the session's `chapter`."""

    chapter: int
    position: int = 0

    def begins_anew(self, session: Session) -> bool:
        """True once after each time that the session forgot what was said before."""
        if self.chapter == session.chapter:
            return False
        self.chapter, self.position = session.chapter, 0
        return True

    def unseen(self, session: Session) -> tuple[Message, ...]:
        """What was stored without the flow since it last looked."""
        stored = session.load_conversation()
        unseen, self.position = stored[self.position :], len(stored)
        return unseen

    def save_known(
        self,
        session: Session,
        role: str,
        text: str,
        speaker: str | None = None,
        citations: Sequence[Citation] = (),
    ) -> None:
        """Store a message that the flow knows already."""
        session.save_message(role, text, speaker=speaker, citations=citations)
        self.position += 1
