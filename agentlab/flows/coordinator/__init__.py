"""Provider-neutral coordinator: its own trimmed history, a stable system prompt, memories before the user's message."""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.core.messages import Reply, ToolSpec, UserTurn
from agentlab.core.names import LOOKUP_DOCUMENTS
from agentlab.core.slot import Slot
from agentlab.flows.coordinator.chat_history import ChatHistory
from agentlab.flows.coordinator.episodes import PROMPTS, Episodes
from agentlab.flows.coordinator.llm_coordinator import LLMCoordinator
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.history_cursor import HistoryCursor
from agentlab.flows.text_files import read_file
from agentlab.session.session import Session

__all__ = ["PROMPTS", "STATE", "Settings", "State", "respond"]

TOOLS = (LOOKUP_DOCUMENTS, "get_current_time", "read_file", "write_file", "search_web")
MEMORY = True
CALLS_PER_TURN = 1.7
Settings = CoordinatorSettings


@dataclass
class State:
    """What is kept from turn to turn."""

    coordinator: LLMCoordinator
    episodes: Episodes
    cursor: HistoryCursor


def _open_state(session: Session) -> State:
    settings: CoordinatorSettings = session.settings
    episodes = Episodes(settings)
    remembers = session.memory is not None
    coordinator = LLMCoordinator(
        history=ChatHistory(settings.agent),
        system_instruction=read_file(settings.system_instruction),
        settings=settings,
        build_context=episodes.build_context if remembers and settings.memory_facts else None,
        store_turn=episodes.after_turn if remembers else None,
    )
    return State(coordinator, episodes, HistoryCursor(session.chapter))


STATE: Slot[State] = Slot(_open_state)


async def respond(turn: UserTurn, session: Session) -> Reply:
    settings: CoordinatorSettings = session.settings
    state = session.kept(STATE)
    _catch_up(state, session)
    text = ""
    state.cursor.save_known(session, "user", turn.text, turn.speaker_name)
    try:
        reply = state.coordinator.run(turn.text, session, _offered_tools(settings, session))
        text = await state.episodes.beside(reply, turn.text, session)
    finally:
        # An interrupted reply is part of the conversation as far as it came.
        text = text or state.coordinator.history.newest_reply()
        if text:
            state.cursor.save_known(session, "agent", text, settings.agent)
    return Reply(text=text)


def _catch_up(state: State, session: Session) -> None:
    """Take in what was said without the flow, and begin anew where the session forgot what was said before."""
    history = state.coordinator.history
    if state.cursor.begins_anew(session):
        history.clear()
        state.episodes.reset()
    for message in state.cursor.unseen(session):
        if message.role in ("user", "agent"):
            history.add_message(history.agent if message.role == "agent" else "user", message.text)


def _offered_tools(settings: CoordinatorSettings, session: Session) -> tuple[ToolSpec, ...]:
    """Tools that a conversation brings along are all offered."""
    if settings.tools is None or session.tools_are_brought:
        return session.tool_specs()
    return tuple(tool for tool in session.tool_specs() if tool.name in settings.tools)
