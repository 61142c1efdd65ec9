"""What flows that keep a history of their own share: following the stored conversation, and files named in settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentlab.core.messages import Citation, Message
from agentlab.session.session import Session


@dataclass
class Heard:
    """How far the flow has followed the stored conversation."""

    chapter: int
    count: int = 0

    def begins_anew(self, session: Session) -> bool:
        """True once after each time that the session forgot what was said before."""
        if self.chapter == session.chapter:
            return False
        self.chapter, self.count = session.chapter, 0
        return True

    def missed(self, session: Session) -> tuple[Message, ...]:
        """What was stored without the flow since it last looked."""
        stored = session.load_conversation()
        fresh, self.count = stored[self.count :], len(stored)
        return fresh

    def save(
        self,
        session: Session,
        role: str,
        text: str,
        speaker: str | None = None,
        citations: Sequence[Citation] = (),
    ) -> None:
        """Store a message that the flow knows already."""
        session.save_message(role, text, speaker=speaker, citations=citations)
        self.count += 1


def existing_file(path: str) -> str:
    """For settings that name a text file; raises ValueError where there is none, or where it is not UTF-8."""
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a file")
    try:
        Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    return path
