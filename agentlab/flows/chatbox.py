"""Two-step orchestrator with long-term memory, for one user: choose an action, write its arguments, answer."""

from __future__ import annotations

from agentlab.core.constants import MEMORY_TOOLS
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.two_step.orchestrator import (
    PROMPTS,
    Profile,
    TwoStepSettings,
    personality,
    process_memory,
    process_message,
)
from agentlab.session.session import Session

__all__ = ["PROMPTS", "Settings", "respond", "write_memory"]

TOOLS = ("get_current_time", "read_file", "write_file", "search_web", *MEMORY_TOOLS)
MEMORY = True
CALLS_PER_TURN = 4.0
ENVIRONMENT = {
    "CHATBOX_LLM_PROVIDER": "provider",
    "CHATBOX_LLM_MODEL": "model",
    "CHATBOX_MAX_TOOL_CALLS": "max_tool_calls",
}
Settings = TwoStepSettings
PROFILE = Profile(base_messages=lambda session, turn: [personality(session, "master")])


async def respond(turn: UserTurn, session: Session) -> Reply:
    return await process_message(PROFILE, turn, session)


async def write_memory(turn: UserTurn, session: Session) -> None:
    """Run the final memory step without a reply, for `ingest: flow`."""
    await process_memory(PROFILE, turn, session)
