"""Two-step orchestrator with long-term memory, for one user: choose an action, write its arguments, answer."""

from __future__ import annotations

from agentlab.core.messages import Reply, UserTurn
from agentlab.core.names import MEMORY_TOOLS
from agentlab.flows.two_step.orchestrator import process_memory, process_message
from agentlab.flows.two_step.profile import PROMPTS, Profile, TwoStepSettings, personality
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


class ChatBox(Profile):
    def base_messages(self, session: Session, turn: UserTurn) -> list[str]:
        return [personality(session, "master")]


async def respond(turn: UserTurn, session: Session) -> Reply:
    return await process_message(ChatBox(), turn, session)


async def write_memory(turn: UserTurn, session: Session) -> None:
    """The final memory step without a reply, for `ingest: flow`."""
    await process_memory(ChatBox(), turn, session)
