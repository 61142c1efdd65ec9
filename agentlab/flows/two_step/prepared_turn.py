"""What a turn of the two-step orchestrator begins with: the memories it brings up, its tools, and the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.messages import Fact, Message, ToolSpec, UserTurn
from agentlab.core.names import MEMORY_UNAVAILABLE, SAVE_MEMORY, UPDATE_MEMORY
from agentlab.flows.two_step.profile import Profile, TwoStepSettings
from agentlab.session.session import Session
from agentlab.tools.recollection import entry

WRITES = (SAVE_MEMORY, UPDATE_MEMORY)


class Transcript:
    """The conversation as the model sees it, results of tools included; what is added is stored at once."""

    def __init__(self, session: Session, earlier: Sequence[Message]) -> None:
        self._session = session
        self.messages = list(earlier)

    def add(self, role: Literal["user", "agent", "system"], text: str, speaker: str | None = None) -> None:
        self.messages.append(Message(role=role, text=text, name=speaker))
        self._session.save_message(role, text, speaker=speaker)


@dataclass(frozen=True)
class PreparedTurn:
    session: Session
    transcript: Transcript
    tools: Sequence[ToolSpec]
    """Those the profile allows."""
    facts: Sequence[Fact]
    """Of long-term memory, those nearest to the message."""

    @property
    def memory_context(self) -> list[Message]:
        """The system message that tells the facts, where there are any."""
        if not self.facts:
            return []
        return [Message(role="system", text=self.session.prompt("facts", facts=self.listed_facts()))]

    def listed_facts(self) -> str:
        return "\n".join(map(entry, self.facts))

    def tools_that_write(self) -> list[ToolSpec]:
        return [tool for tool in self.tools if tool.name in WRITES]


async def prepare_turn(profile: Profile, turn: UserTurn, session: Session) -> PreparedTurn:
    """Read memory, take up the stored history and add the message to it."""
    settings: TwoStepSettings = session.settings
    facts = await _read_memory(session, turn.text) if settings.automatic_memory else ()
    transcript = Transcript(session, session.load_conversation(settings.history) if settings.history else ())
    transcript.add("user", profile.prepare(turn), speaker=turn.speaker_name)
    return PreparedTurn(session, transcript, _allowed_tools(profile, session), facts)


async def _read_memory(session: Session, text: str) -> tuple[Fact, ...]:
    """The facts nearest to the raw message; a memory that is away leaves a notice and no facts."""
    with session.step("automatic_memory"):
        try:
            return await session.recall(text, top_k=session.settings.memory_facts)
        except MemoryUnavailable as gone:
            session.notify(MEMORY_UNAVAILABLE, str(gone))
            return ()


def _allowed_tools(profile: Profile, session: Session) -> list[ToolSpec]:
    """Tools a conversation brings along replace the profile's list; the memory tools stay with their steps."""
    names = None if session.tools_are_brought else profile.allowed_tools()
    allowed = [spec for spec in session.tool_specs() if names is None or spec.name in names]
    return allowed if profile.final_memory_step else without(allowed, WRITES)


def without(tools: Sequence[ToolSpec], names: Sequence[str]) -> list[ToolSpec]:
    return [tool for tool in tools if tool.name not in names]
