"""Layered agent: ego, planner and a step-by-step coordinator, text memory, reflection after every response."""

from __future__ import annotations

from agentlab.core.messages import Reply, UserTurn
from agentlab.core.names import LOOKUP_DOCUMENTS
from agentlab.flows.ego import agent, memory, own_tools, planner, react
from agentlab.session.session import Session

__all__ = ["PROMPTS", "PROMPT_MODULES", "Settings", "respond"]

PROMPT_MODULES = {
    "ego": {**agent.PROMPTS, **own_tools.PROMPTS},
    "memory": memory.PROMPTS,
    "planner": planner.PROMPTS,
    "coordinator": react.PROMPTS,
}
"""The folders of `<data folder>/prompts` from which files `<PROMPT_NAME>.txt` take the place of a prompt."""
PROMPTS = {name: text for prompts in PROMPT_MODULES.values() for name, text in prompts.items()}
TOOLS = (
    LOOKUP_DOCUMENTS,
    "get_current_time",
    "question",
    "llmquery",
    own_tools.memory_maintenance,
    own_tools.reflection,
)
DATA_TOOLS = True
CALLS_PER_TURN = 12.0
ENVIRONMENT = {"LLM_AGENT_DATA_DIR": "data"}
Settings = agent.EgoSettings


async def respond(turn: UserTurn, session: Session) -> Reply:
    session.token_limit = session.settings.token_limit
    remembered = session.kept(memory.MEMORY)
    remembered.catch_up(session)
    remembered.cursor.save_known(session, "user", turn.text, turn.speaker_name)
    reply = await agent.answer_message(turn.text, session)
    remembered.cursor.save_known(session, "agent", reply.text, citations=reply.citations)
    return reply
