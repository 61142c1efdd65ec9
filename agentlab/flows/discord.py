"""Two-step orchestrator for a shared channel: several users, one master, few tools, no memory writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from agentlab.core.constants import MEMORY_TOOLS
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.two_step.orchestrator import PROMPTS, Profile, TwoStepSettings, personality, process_message
from agentlab.session.session import Session
from agentlab.tools.memory import one_line

__all__ = ["PROMPTS", "Settings", "respond"]

TOOLS = ("get_current_time", "read_file", "write_file", "search_web", *MEMORY_TOOLS)
MEMORY = True
CALLS_PER_TURN = 2.5
ENVIRONMENT = {
    "DISCORD_LLM_PROVIDER": "provider",
    "DISCORD_LLM_MODEL": "model",
    "DISCORD_MAX_TOOL_CALLS": "max_tool_calls",
    "MASTER_DISCORD_ID": "master_id",
}


@dataclass(frozen=True, kw_only=True)
class Settings(TwoStepSettings):
    max_tool_calls: Annotated[int, Ge(0)] = 3
    """Maximum number of tool calls per message."""
    master_id: str = "master"
    """Id of the user that the assistant belongs to."""
    stranger: Literal[1, 2] = 1
    """Number of the personality for all other users."""


def _base_messages(session: Session, turn: UserTurn) -> list[str]:
    name = "master" if _is_master(session, turn) else f"stranger_{session.settings.stranger}"
    return [personality(session, name), f"It is {session.now:%A, %Y-%m-%d, %H:%M}."]


def _speaker(session: Session, turn: UserTurn) -> list[str]:
    user = f"You are talking with {_name(turn, 'somebody')} (ID {one_line(turn.speaker_id or 'unknown')})"
    return [f"{user}, who {'is' if _is_master(session, turn) else 'is not'} the one you belong to."]


def _is_master(session: Session, turn: UserTurn) -> bool:
    return bool(turn.speaker_id == session.settings.master_id)


def _name(turn: UserTurn, unknown: str) -> str:
    """Return the speaker's name as one line, because the speaker chose it."""
    return one_line(turn.speaker_name or "") or unknown


PROFILE = Profile(
    base_messages=_base_messages,
    speaker=_speaker,
    is_owner=_is_master,
    # Indented, a line of a message cannot look like the line of another speaker.
    prepare=lambda turn: "\n    ".join(f"{_name(turn, 'Somebody')} said: {turn.text}".splitlines()),
    allowed_tools=("fetch_memory", "search_web", "get_current_time"),
    final_memory_step=False,
)


async def respond(turn: UserTurn, session: Session) -> Reply:
    return await process_message(PROFILE, turn, session)
