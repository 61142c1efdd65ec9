"""Provider-neutral coordinator: its own trimmed history, a stable system prompt, memories before the user's message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator

from agentlab.core.messages import Reply, ToolSpec, UserTurn
from agentlab.flows.coordinator.chat_history import ChatHistory, own_name
from agentlab.flows.coordinator.episodes import PROMPTS as PROMPTS
from agentlab.flows.coordinator.episodes import Episodes
from agentlab.flows.coordinator.llm_coordinator import Limits, LLMCoordinator
from agentlab.flows.kept import Heard, existing_file
from agentlab.session.session import Session

__all__ = ["PROMPTS", "Settings", "respond"]

TOOLS = ("lookup_documents", "get_current_time", "read_file", "write_file", "search_web")
MEMORY = True
CALLS_PER_TURN = 1.7


@dataclass(frozen=True, kw_only=True)
class Settings:
    agent: Annotated[str, AfterValidator(own_name)] = "miyori"
    """The agent's name in history, logs and exports."""
    system_instruction: Annotated[str, AfterValidator(existing_file)] = str(
        Path(__file__).parent / "instructions" / "coordinator.txt"
    )
    """A text file; it reaches the provider as it is, in every call."""
    tools: tuple[str, ...] | None = None
    """Names of the tools to offer; all there are, if not given."""
    max_history_tokens: Annotated[int, Gt(0)] = 8000
    max_tool_turns: Annotated[int, Gt(0)] = 5
    trim_chunk_size: Annotated[int, Ge(0)] = 1000
    """How many tokens go at a time once the history is too long; 0: no more than have to."""
    context_in: Literal["user", "system"] = "user"
    parallel_tools: bool = False
    memory_facts: Annotated[int, Ge(0)] = 3
    memory_read: Literal["direct", "ahead", "stream"] = "direct"
    """Search memory before the reply, or after it for the next one, or while it is made, for the next one, too."""
    store_turns: bool = True
    gate: Literal["all", "words", "model"] = "words"
    """Which turns are worth keeping: all, those of a few words at least, or what the model says."""
    consolidate_every: Annotated[int, Ge(0)] = 0
    """Draw lasting facts from the episodes whenever so many have been stored; 0: never."""
    merge_at: Annotated[float, Ge(0), Le(1)] = 0.6
    """Cosine similarity from which a fact drawn from episodes takes the place of an older one."""

    def __post_init__(self) -> None:
        if self.trim_chunk_size >= self.max_history_tokens:
            raise ValueError("trim_chunk_size has to be smaller than max_history_tokens")


@dataclass
class _State:
    """What is kept from turn to turn."""

    coordinator: LLMCoordinator
    episodes: Episodes
    heard: Heard


async def respond(turn: UserTurn, session: Session) -> Reply:
    settings: Settings = session.settings
    if "coordinator" not in session.state:
        session.state["coordinator"] = _open(session)
    state: _State = session.state["coordinator"]
    _catch_up(state, session)
    text = ""
    state.heard.save(session, "user", turn.text, turn.speaker_name)
    try:
        reply = state.coordinator.run(turn.text, session, _offered(settings, session))
        text = await (state.episodes.beside(reply, turn.text, session) if session.memory is not None else reply)
    finally:
        # An interrupted reply is part of the conversation as far as it came.
        text = text or _said(state.coordinator.history)
        if text:
            state.heard.save(session, "agent", text, settings.agent)
    return Reply(text=text)


def _open(session: Session) -> _State:
    settings: Settings = session.settings
    episodes = Episodes(
        agent=settings.agent,
        facts=settings.memory_facts,
        read=settings.memory_read,
        gate=settings.gate,
        consolidate_every=settings.consolidate_every,
        stores=settings.store_turns,
        merge_at=settings.merge_at,
    )
    limits = Limits(
        max_history_tokens=settings.max_history_tokens,
        max_tool_turns=settings.max_tool_turns,
        trim_chunk_size=settings.trim_chunk_size,
    )
    remembers = session.memory is not None
    coordinator = LLMCoordinator(
        history=ChatHistory(settings.agent),
        system_instruction=Path(settings.system_instruction).read_text(encoding="utf-8").strip(),
        limits=limits,
        context_in=settings.context_in,
        parallel_tools=settings.parallel_tools,
        build_context=episodes.build_context if remembers and settings.memory_facts else None,
        store_turn=episodes.after_turn if remembers else None,
    )
    return _State(coordinator, episodes, Heard(session.chapter))


def _catch_up(state: _State, session: Session) -> None:
    """Take in what was said without the flow, and begin anew where the session forgot what was said before."""
    if state.heard.begins_anew(session):
        state.coordinator.history.clear()
        state.episodes.reset()
    history = state.coordinator.history
    for message in state.heard.missed(session):
        if message.role in ("user", "agent"):
            history.add_message(history.agent if message.role == "agent" else "user", message.text)


def _offered(settings: Settings, session: Session) -> tuple[ToolSpec, ...]:
    """Tools that a conversation brings along are all offered."""
    if settings.tools is None or session.tools_are_brought:
        return session.tool_specs()
    return tuple(tool for tool in session.tool_specs() if tool.name in settings.tools)


def _said(history: ChatHistory) -> str:
    """What the agent has said in the newest exchange, at most once."""
    for message in reversed(history.get_history()):
        if message.role == "user":
            return ""
        if message.role == "agent" and message.text:
            return message.text
    return ""
