"""Layered agent: ego, planner and a step-by-step coordinator, text memory, reflection after every response."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator

from agentlab.flows import _ego, _ego_memory, _planner, _react
from agentlab.flows._ego import Ego, Switches
from agentlab.flows._ego_memory import EgoMemory
from agentlab.memory._tagged_log import data_folder
from agentlab.messages import Reply, UserTurn
from agentlab.session import Session

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
CALLS_PER_TURN = 8.0
ENVIRONMENT = {"LLM_AGENT_DATA_DIR": "data"}
PERSONALITY = Path(__file__).parent / "personalities" / "ego.txt"


def _checked_file(path: str) -> str:
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a file; it holds the personality")
    return path


@dataclass(frozen=True, kw_only=True)
class Settings:
    relevance: bool = True
    """Have the model choose the memories that matter; without it the newest are shown."""
    planning: bool = True
    """Make a strategy first; without it every step is chosen as it comes."""
    evaluation: bool = True
    """Judge every step against the criteria of success; without it the agent goes on until it wants no tool."""
    reflection: bool = True
    """Look back after each response, and before each new attempt."""
    max_iterations: Annotated[int, Gt(0)] = 10
    max_replans: Annotated[int, Ge(0)] = 2
    """How often a plan is asked for anew that names tools that do not exist."""
    max_retries: Annotated[int, Ge(0)] = 1
    """Further attempts while the score is at or below the threshold."""
    success_threshold: Annotated[float, Ge(0), Le(100)] = 80.0
    token_limit: Annotated[int, Gt(0)] = 10_000
    """Longer requests are rejected; estimated, four characters a token."""
    personality: Annotated[str, AfterValidator(_checked_file)] = str(PERSONALITY)
    data: str | None = None
    """The agent's data folder, or LLM_AGENT_DATA_DIR."""
    keep_memory: bool = False
    """Keep memory in the data folder from one conversation to the next. Off, as in a comparison: each starts empty."""


async def respond(turn: UserTurn, session: Session) -> Reply:
    if "ego" not in session.state:
        session.state["ego"] = _open(session)
        session.state["ego_chapter"] = session.chapter
    ego: Ego = session.state["ego"]
    if session.state["ego_chapter"] != session.chapter:
        session.state["ego_chapter"] = session.chapter
        session.state["ego_heard"] = 0
        ego.memory.end_session()
    _catch_up(ego, session)
    session.save_message("user", turn.text, speaker=turn.speaker_name)
    session.state["ego_heard"] += 1
    reply = await ego.process_message(turn.text, session)
    session.save_message("agent", reply.text)
    session.state["ego_heard"] += 1
    return reply


def _catch_up(ego: Ego, session: Session) -> None:
    """Take what was said without the agent into short-term memory."""
    stored = session.load_conversation()
    for message in stored[session.state.get("ego_heard", 0) :]:
        ego.memory.note(session, "ego", "user" if message.role == "user" else "response", message.text)
    session.state["ego_heard"] = len(stored)


def _open(session: Session) -> Ego:
    settings: Settings = session.settings
    return Ego(
        memory=EgoMemory.open(_memory_folder(session), settings.token_limit),
        personality=Path(settings.personality).read_text(encoding="utf-8").strip(),
        switches=Switches(
            relevance=settings.relevance,
            planning=settings.planning,
            evaluation=settings.evaluation,
            reflection=settings.reflection,
        ),
        token_limit=settings.token_limit,
        max_iterations=settings.max_iterations,
        max_replans=settings.max_replans,
        max_retries=settings.max_retries,
        success_threshold=settings.success_threshold,
    )


def _memory_folder(session: Session) -> Path:
    settings: Settings = session.settings
    if settings.keep_memory:
        return data_folder(settings.data) / "memory" / re.sub(r"[^\w.-]", "_", session.trace.flow)
    folder = Path(tempfile.mkdtemp(prefix="agentlab-"))
    weakref.finalize(session, shutil.rmtree, folder, ignore_errors=True)
    return folder
