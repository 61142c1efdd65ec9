"""What stands in a run folder, as types, and the one way between them and JSON.

    turns.jsonl     a TurnRow a line
    calls.jsonl     an event a line; a CallPlace says where it belongs
    scores.jsonl    a ScoreRow a line
    summary.json    a Summary

Fields are written in the order in which they stand here. What is unknown is None, and null in the file; a field that
older runs do not have is UNSET, and not written.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from agentlab.core.messages import Reply, from_json, to_json
from agentlab.core.trace import Totals

Play = tuple[str, str, int]
"""Flow label, conversation id, epoch."""
Record = TypeVar("Record", bound=Struct)


class TurnRow(Struct, frozen=True, kw_only=True):
    """A turn that was played: what was said, and what it cost."""

    flow: str
    dataset: str
    conversation: str
    turn: int
    category: Any = UNSET
    """Of the conversation, as its data set names it."""
    epoch: int
    take: int
    """How often the conversation was begun before."""
    user: str
    reply: Reply | None
    """None where the turn failed; `error` then says why."""
    error: str | None
    wall_seconds: float
    totals: Totals

    @property
    def play(self) -> Play:
        return self.flow, self.conversation, self.epoch


class CallPlace(Struct, frozen=True, kw_only=True):
    """Where an event of the ledger belongs; the rest of its line is the event."""

    flow: str
    conversation: str
    epoch: int
    take: int
    kind: str

    @property
    def play(self) -> Play:
        return self.flow, self.conversation, self.epoch


class ScoreRow(Struct, frozen=True, kw_only=True):
    """What a metric says of a turn, and why."""

    flow: str
    dataset: str
    conversation: str
    category: Any = UNSET
    turn: int
    epoch: int
    metric: str
    value: float | bool
    reason: str


class Latency(Struct, frozen=True, kw_only=True):
    """Of the turns of a flow, in seconds."""

    mean: float
    p50: float
    p95: float


class PhaseSums(Struct, frozen=True, kw_only=True):
    calls: int
    """Of every kind."""
    input_tokens: int | None
    output_tokens: int | None
    seconds: float


class MetricSummary(Struct, frozen=True, kw_only=True):
    mean: float
    ci95: tuple[float, float] | None
    """None where there are too few conversations for an interval."""
    n: int


class Bill(Struct, frozen=True, kw_only=True):
    """What was asked of a model just now, and is paid for."""

    llm_calls: int | UnsetType = UNSET
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class FlowSummary(Struct, frozen=True, kw_only=True):
    """What a flow cost and what it bought; the sums are over all its turns."""

    turns: int
    errors: int
    llm_calls: int
    embedding_calls: int
    tool_calls: int
    memory_ops: int
    llm_calls_per_turn: float
    embedding_calls_per_turn: float
    tool_calls_per_turn: float
    memory_tokens_per_turn: float | None = None
    """Of facts that were recalled, estimated; None in runs of format 1."""
    memory_unavailable: int = 0
    """Turns that had to do without their memory."""
    fallback_rate: float
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    billed: Bill | UnsetType = UNSET
    latency_s: Latency
    phases: dict[str, PhaseSums]
    scores: dict[str, MetricSummary]
    ingest: dict[str, float | None] | UnsetType = UNSET
    """What of the sums went into filling memories; only there where the flow filled them."""

    def per_turn(self, name: str) -> float | None:
        """The sum `name` in shares of a turn."""
        total: float | None = getattr(self, name)
        return None if total is None else total / self.turns


class Departure(Struct, frozen=True, kw_only=True):
    """The first call of a conversation that was not recorded."""

    flow: str
    conversation: str
    epoch: int
    turn: int
    cause: str
    why: str


class Reuse(Struct, frozen=True, kw_only=True):
    """What a run took from recordings, and what it asked anew."""

    reused: int
    new: int
    billed: Bill
    missing: int
    """What a replay was asked for and did not have."""
    causes: dict[str, int]
    """Why calls were not recorded."""
    diverged: list[Departure]


class Summary(Struct, frozen=True, kw_only=True):
    """The stable machine interface of a run."""

    run_id: str
    status: str
    """`complete` or `partial`."""
    datasets: list[str]
    conversations: int
    turns: int
    model: str
    mode: str
    recordings: Reuse | None = None
    """None for a live run."""
    flows: dict[str, FlowSummary]


def columns(record: Struct) -> dict[str, Any]:
    """The fields of a record in order, without those that are UNSET."""
    named = ((name, getattr(record, name)) for name in record.__struct_fields__)
    return {name: value for name, value in named if value is not UNSET}


def encode(record: Any, indent: int | None = None) -> str:
    """A record as JSON."""
    return json.dumps(record, default=_plain, ensure_ascii=False, indent=indent)


def decode(content: Any, kind: type[Record]) -> Record:
    """A record from parsed JSON; raises ValueError, in a line, where a field is missing or of another type.

    The text is read by `json`: msgspec refuses half a surrogate pair, which a model may write, and NaN.
    """
    for field in msgspec.structs.fields(kind) if isinstance(content, dict) else ():
        if field.required and field.name not in content:
            raise ValueError(f"the row has no {field.name!r}")
    return from_json(kind, content)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return columns(value)
    return vars(value) if isinstance(value, Totals) else to_json(value)
