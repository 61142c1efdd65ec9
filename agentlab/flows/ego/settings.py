"""What can be set of the layered agent: its parts, each of which can be switched off, its limits, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from agentlab.flows.text_files import TextFile


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
    """Longer requests are rejected, those of its tools too; estimated, four bytes a token."""
    personality: TextFile = str(Path(__file__).parent / "personalities" / "ego.txt")
    maintain_every: Annotated[int, Ge(0)] = 0
    """Tidy long-term memory after so many responses; 0: only when it is asked for or planned."""
    data: str | None = None
    """The agent's data folder, or LLM_AGENT_DATA_DIR: tools, servers, prompts, and in a chat its memory. In a
    comparison each conversation starts with an empty memory of its own."""
