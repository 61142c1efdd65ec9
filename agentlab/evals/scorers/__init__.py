"""One scorer a file, grading a turn from its reply and its events; it never calls a flow.

A scorer file has `metrics(turn)`, the names of what it grades on that turn (none where it does not apply), and
`score(turn, outcome)`, which returns a Score for each of them. A turn that failed scores 0 on all. Higher is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentlab.core.events import Event
from agentlab.core.messages import Reply

if TYPE_CHECKING:
    import numpy as np

    from agentlab.data.conversations import ToolDefinition, Turn


@dataclass(frozen=True, kw_only=True)
class Score:
    value: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class TurnOutcome:
    """What a flow did with a turn."""

    reply: Reply
    events: Sequence[Event]
    embed: Callable[[Sequence[str]], np.ndarray]
    """Unit vectors for texts, shape (n, d); outside the flow's ledger."""
    events_before: Sequence[Event] = ()
    """What happened earlier in the conversation; for a question to a memory set, how the flow filled its memory."""
    turns_before: Sequence[Turn] = ()
    tools: Sequence[ToolDefinition] = ()
    """What the conversation brought along."""
