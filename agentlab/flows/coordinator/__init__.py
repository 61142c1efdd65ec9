"""Coordinator with a trimmed history of its own, a stable system prompt and memories before the user's message.

`llm_coordinator`: the loop of model and tool calls. `chat_history`: its trimmed history. `episodes`: recall before a
turn and memory after it, with the prompts. `memory_gate`: turns worth storing. `settings`: its settings.
`state_file`: its state between chats. `instructions/`: texts for its system prompt.
"""

from __future__ import annotations

from pathlib import Path

from agentlab.core.constants import LOOKUP_DOCUMENTS
from agentlab.core.messages import Reply, UserTurn
from agentlab.core.state_key import StateKey
from agentlab.flows.coordinator.episodes import PROMPTS
from agentlab.flows.coordinator.llm_coordinator import LLMCoordinator
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.coordinator.state_file import restore, save
from agentlab.flows.history_cursor import CURSOR
from agentlab.session.session import Session

__all__ = ["COORDINATOR", "PROMPTS", "Settings", "respond"]

TOOLS = (LOOKUP_DOCUMENTS, "get_current_time", "read_file", "write_file", "search_web")
MEMORY = True
CALLS_PER_TURN = 1.7
Settings = CoordinatorSettings
COORDINATOR: StateKey[LLMCoordinator] = StateKey(lambda session: LLMCoordinator(session.settings))


async def respond(turn: UserTurn, session: Session) -> Reply:
    coordinator, cursor = session.state(COORDINATOR), session.state(CURSOR)
    history, folder = coordinator.history, session.has.files.folder
    was_reset, unseen = cursor.read_new_messages(session)
    if was_reset:
        history.clear()
        coordinator.episodes.reset()
    elif folder is not None and cursor.position == len(unseen):
        # In the first turn of a session, all stored messages are new.
        unseen = () if restore(folder, coordinator, unseen) else unseen
    for message in unseen:
        if message.role in ("user", "agent"):
            history.add_message(history.agent if message.role == "agent" else "user", message.text)
    names, tools = session.settings.tools, session.tool_specs()
    if names is not None and not session.has.has_dataset_tools:
        tools = tuple(tool for tool in tools if tool.name in names)
    text = ""
    cursor.save_own_message(session, "user", turn.text, speaker=turn.speaker_name)
    try:
        reply = coordinator.run(turn.text, session, tools)
        text = await coordinator.episodes.with_memory_search(reply, turn.text, session)
    finally:
        # The received part of an interrupted reply belongs to the conversation.
        text = text or history.last_reply()
        if text:
            cursor.save_own_message(session, "agent", text, speaker=history.agent)
        if folder is not None:
            session.background(_save_state(folder, coordinator, session), "keep the coordinator's state")
    return Reply(text=text)


async def _save_state(folder: Path, coordinator: LLMCoordinator, session: Session) -> None:
    save(folder, coordinator, session.load_conversation())
