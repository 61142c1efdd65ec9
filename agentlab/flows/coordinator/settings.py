"""Settings of the coordinator: the agent's name, its limits, its tools and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator

from agentlab.core.protocols import RELEVANCE_THRESHOLD
from agentlab.flows.coordinator.chat_history import own_name
from agentlab.flows.text_files import TextFile


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings:
    agent: Annotated[str, AfterValidator(own_name)] = "miyori"
    """Agent's name in the history and in logs."""
    system_instruction: TextFile = str(Path(__file__).parent / "instructions" / "coordinator.txt")
    """Path of the text file with the system instruction of every call."""
    tools: tuple[str, ...] | None = None
    """Names of the offered tools. All tools are offered if it is not set, or if the data set supplies the tools."""
    max_history_tokens: Annotated[int, Gt(0)] = 8000
    """Maximum length of the history in estimated tokens of four characters."""
    max_tool_turns: Annotated[int, Gt(0)] = 5
    """Maximum number of rounds of tools per turn; one more call without tools then answers."""
    trim_chunk_size: Annotated[int, Ge(0)] = 1000
    """Minimum number of tokens that are dropped together from a history that is too long; 0: only as many as needed."""
    context_in: Literal["user", "system"] = "user"
    """Position of date and memories: before the prompt, or after the system instruction, which then varies."""
    parallel_tools: bool = False
    """Run the tool calls of one reply in parallel."""
    memory_facts: Annotated[int, Ge(0)] = 3
    """Maximum number of memories before a prompt."""
    memory_min_score: Annotated[float, Ge(-1), Le(1)] = RELEVANCE_THRESHOLD
    """Minimum cosine similarity of a memory to the prompt."""
    distinct_memories: bool = True
    """Put only the newest of several stored turns with the same user message before a prompt."""
    memory_read: Literal["direct", "ahead", "stream"] = "direct"
    """Time of the memory search: before the reply, after it for the next one, or during it for the next one."""
    store_turns: bool = True
    """Write turns to long-term memory."""
    gate: Literal["all", "words", "rules", "model"] = "rules"
    """Turns to store in memory: all, those that state a fact, or those the model selects.

    `rules` read the wording in ten languages; `words` read it as older recordings do.
    """
    consolidate_every: Annotated[int, Ge(0)] = 0
    """Number of stored episodes after which the model extracts lasting facts; 0: never."""
    merge_at: Annotated[float, Ge(0), Le(1)] = 0.6
    """Cosine similarity from which an extracted fact replaces an older one."""

    def __post_init__(self) -> None:
        if self.trim_chunk_size >= self.max_history_tokens:
            raise ValueError("trim_chunk_size must be smaller than max_history_tokens")
