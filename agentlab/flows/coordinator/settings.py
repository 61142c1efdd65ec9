"""What can be set of the coordinator: the agent's name, its limits, its tools, and what it does with memory."""

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
    """The agent's name in history and logs."""
    system_instruction: TextFile = str(Path(__file__).parent / "instructions" / "coordinator.txt")
    """A text file; it reaches the provider as it is, in every call."""
    tools: tuple[str, ...] | None = None
    """Names of the tools to offer; all there are, if not given or if the conversation brings its own."""
    max_history_tokens: Annotated[int, Gt(0)] = 8000
    """Estimated, as all tokens here."""
    max_tool_turns: Annotated[int, Gt(0)] = 5
    """Calls of the model within one turn of the user."""
    trim_chunk_size: Annotated[int, Ge(0)] = 1000
    """How many tokens go at a time once the history is too long; 0: no more than have to."""
    context_in: Literal["user", "system"] = "user"
    """Where date and memories stand: before the prompt, or after the system instruction, which then never is stable."""
    parallel_tools: bool = False
    """Run the calls of one reply side by side."""
    memory_facts: Annotated[int, Ge(0)] = 3
    """How many memories stand before a prompt at most."""
    memory_min_score: Annotated[float, Ge(-1), Le(1)] = RELEVANCE_THRESHOLD
    """Cosine similarity to the prompt from which a memory is brought."""
    memory_read: Literal["direct", "ahead", "stream"] = "direct"
    """Search memory before the reply, or after it for the next one, or while it is made, for the next one, too."""
    store_turns: bool = True
    """Write turns to long-term memory."""
    gate: Literal["all", "words", "model"] = "words"
    """Which turns are worth keeping: all, those whose words tell something, or what the model says."""
    consolidate_every: Annotated[int, Ge(0)] = 0
    """Draw lasting facts from the episodes whenever so many have been stored; 0: never."""
    merge_at: Annotated[float, Ge(0), Le(1)] = 0.6
    """Cosine similarity from which a fact drawn from episodes takes the place of an older one."""

    def __post_init__(self) -> None:
        if self.trim_chunk_size >= self.max_history_tokens:
            raise ValueError("trim_chunk_size has to be smaller than max_history_tokens")
