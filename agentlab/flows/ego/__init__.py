"""Layered agent: ego, planner and a step-by-step coordinator, text memory, reflection after every response."""

from __future__ import annotations

from pathlib import Path

from agentlab.core.files import data_folder, folder_of
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.ego import agent as _ego
from agentlab.flows.ego import memory as _ego_memory
from agentlab.flows.ego import planner as _planner
from agentlab.flows.ego import react as _react
from agentlab.flows.ego.agent import Ego
from agentlab.flows.ego.agent import Settings as Settings
from agentlab.flows.ego.memory import EgoMemory
from agentlab.flows.kept import Heard
from agentlab.session.session import Session

__all__ = ["PROMPTS", "PROMPT_MODULES", "Settings", "respond"]

PROMPT_MODULES = {
    "ego": _ego.PROMPTS,
    "memory": _ego_memory.PROMPTS,
    "planner": _planner.PROMPTS,
    "coordinator": _react.PROMPTS,
}
"""The folders of `<data folder>/prompts` from which files `<PROMPT_NAME>.txt` take the place of a prompt."""
PROMPTS = {name: text for prompts in PROMPT_MODULES.values() for name, text in prompts.items()}
TOOLS = (
    "lookup_documents",
    "get_current_time",
    "question",
    "llmquery",
    "memory_maintenance",
    "reflection",
)
DATA_TOOLS = True
CALLS_PER_TURN = 12.0
ENVIRONMENT = {"LLM_AGENT_DATA_DIR": "data"}


async def respond(turn: UserTurn, session: Session) -> Reply:
    if "ego" not in session.state:
        session.state["ego"] = _open(session)
    ego: Ego = session.state["ego"]
    if ego.heard.begins_anew(session):
        ego.memory.end_session()
    for message in ego.heard.missed(session):
        ego.memory.note(session, "ego", "user" if message.role == "user" else "response", message.text)
    ego.heard.save(session, "user", turn.text, turn.speaker_name)
    reply = await ego.process_message(turn.text, session)
    ego.heard.save(session, "agent", reply.text, citations=reply.citations)
    return reply


def _open(session: Session) -> Ego:
    settings: Settings = session.settings
    session.token_limit = settings.token_limit
    memory = EgoMemory.open(_memory_folder(session))
    heard = Heard(session.chapter)
    if memory.short.entries():
        stored = session.load_conversation()
        if memory.take_up([message.text for message in stored if message.role == "user"]):
            # This chat goes on, and its messages are in short-term memory already.
            heard.count = len(stored)
        memory.prune_old()
    return Ego(
        memory=memory,
        personality=Path(settings.personality).read_text(encoding="utf-8").strip(),
        settings=settings,
        heard=heard,
    )


def _memory_folder(session: Session) -> Path:
    settings: Settings = session.settings
    if session.folder is None:
        return folder_of(session)
    return data_folder(settings.data) / "memory" if settings.data else session.folder
