"""Scorers, one per file: each grades a turn from its reply and its events and never calls a flow.

A scorer file defines two functions. `metrics(turn)` returns the names of the metrics that apply to a turn, if any.
`score(turn, outcome)` returns a Score for each of them. A failed turn scores 0 on all. Higher is better.

Text: `answer` (token F1), `correctness`, `rouge`, `similarity`, `groundedness`, `refusal`, `citations`, `injection`.
Search: `lookup`, `retrieval`, `ranking`. Tools: `tools`. Memory: `memory_recall`, `memory_writes`. Helpers, no scorers:
`words`, `stems`, `families`, `values`, `tables`, `dates`, `options`, `polarity`, `names`, `lists`, `focus`, `overlap`,
`facts`.
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
    """Value of one metric on one turn, with a reason for the reader."""

    value: float | None
    """None if the scorer cannot decide (`measures.ABSTAINING`); `reason` has the cause."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class TurnOutcome:
    """A turn as the flow played it: its reply and its events."""

    reply: Reply
    events: Sequence[Event]
    embed: Callable[[Sequence[str]], np.ndarray]
    """Return unit vectors of n texts, shape (n, d); the call is not in the flow's ledger."""
    events_before: Sequence[Event] = ()
    """Events of earlier turns; for a question of a memory set, the events that filled the memory."""
    turns_before: Sequence[Turn] = ()
    """Earlier turns of the conversation, as the data set has them."""
    tools: Sequence[ToolDefinition] = ()
    """Tools from the data set."""
    embedder: str = ""
    """Name of the embedder behind `embed`."""
