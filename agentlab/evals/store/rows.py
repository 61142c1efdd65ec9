"""What stands in a run folder, as types, and the one way from them to JSON.

    turns.jsonl     a TurnRow a line, with what it cost and its scores
    calls.jsonl     an event a line, with flow, conversation, epoch and take (see `agentlab.evals.store.ledger`)
    summary.json    a Summary

Fields are written in the order in which they stand here. What is unknown is None, and null in the file; a field that
older runs do not have is UNSET, and not written. `from_json` reads what `json` has parsed: msgspec refuses half a
surrogate pair, which a model may write, and NaN.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from agentlab.core.messages import Reply, to_json
from agentlab.core.trace import Totals

TrialKey = tuple[str, str, int]
"""Flow label, conversation id, epoch."""
Sums = dict[str, int | float | None]
"""Sums by name; None where a part is unknown."""
UNKNOWN = "unknown"
"""The hash of a grader whose source is not at hand."""
RESTART_MARKER = -1
"""The number of a row that stands for no turn: from there on the rows of its take count, and those before do not."""


class _Flow(Struct):
    flow: str
    label: str


class _Spec(Struct):
    name: str
    datasets: list[str]
    flows: list[_Flow]
    model: str
    mode: str
    limit: int | None
    sample: int | None = None
    prices: str | None = None
    primary: list[str] = []


class _Data(Struct):
    sha256: str


class Header(Struct):
    """What is read of `run.json`, and its types; the rest is for people."""

    format: int
    run_id: str
    spec: _Spec
    datasets: dict[str, _Data]
    models: dict[str, str]
    graders: dict[str, str]
    sealed: bool = False
    """Whether the summary that it gets at its end has a seal."""


class StoredScore(Struct, frozen=True):
    """What a metric says of a turn, and why."""

    value: float | bool | None
    """None where a scorer could not work it out, or the source of an imported answer does not say."""
    reason: str

    @property
    def shown(self) -> str:
        return "?" if self.value is None else f"{float(self.value):.2f}"


class _Turn(Struct, frozen=True, kw_only=True):
    @property
    def play(self: Any) -> TrialKey:
        return self.flow, self.conversation, self.epoch

    @property
    def key(self: Any) -> tuple[str, int, int]:
        return self.conversation, self.turn, self.epoch

    def costs(self: Any) -> dict[str, Any]:
        """What the turn took, by the names under which flows are compared."""
        found = {**asdict(self.totals), "failed": int(self.error is not None), "latency_s": self.latency_s}
        return found if self.retrieval_steps is UNSET else found | {"retrieval_steps": self.retrieval_steps}


class TurnRow(_Turn, frozen=True, kw_only=True):
    """A turn that was played, or imported: what was said, what it cost, and how it was graded."""

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
    wall_seconds: float | None
    """None of an imported answer."""
    totals: Totals
    latency_s: float | None
    """Seconds of the longest path through its events; of an imported answer, as its source says."""
    memory_tokens: int | None
    """Of facts that were recalled, estimated."""
    memory_unavailable: int | None
    """1 where it had to do without its memory."""
    phases: dict[str, Sums]
    """As of a flow's summary."""
    scores: dict[str, StoredScore] | None = None
    """By metric; None where a scorer failed and the turn is still to be graded."""
    retrieval_steps: int | UnsetType | None = UNSET
    """Only of an imported answer, as its source says."""
    passages: list[str] | UnsetType = UNSET
    """Ids of the documents that an imported answer was made of, where its source says."""
    published: dict[str, Any] | UnsetType = UNSET
    """What the source of an imported answer noted for it: numbers, labels, ratings by rater."""


class Value(Struct, frozen=True):
    """Of a score what figures need."""

    value: float | bool | None


class TurnFigures(_Turn, frozen=True, kw_only=True):
    """Of a turn row the figures: what tables and comparisons read, without decoding what was said."""

    flow: str
    conversation: str
    turn: int
    category: Any = UNSET
    epoch: int
    take: int
    error: str | None
    totals: Totals
    latency_s: float | None
    wall_seconds: float | None = None
    retrieval_steps: int | UnsetType | None = UNSET
    scores: dict[str, Value] | None = None


class MetricSummary(Struct, frozen=True, kw_only=True):
    mean: float | None
    """None where a value is unknown."""
    ci95: tuple[float, float] | None
    """None where there are too few conversations for an interval."""
    n: int


class Latency(TypedDict):
    mean: float | None
    p50: float | None
    p95: float | None


class Billed(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class FlowSummary(Struct, frozen=True, kw_only=True):
    """What a flow cost and what it bought; the sums are over all its turns."""

    turns: int
    errors: int
    llm_calls: int | None
    embedding_calls: int | None
    tool_calls: int | None
    memory_ops: int | None
    llm_calls_per_turn: float | None
    embedding_calls_per_turn: float | None
    tool_calls_per_turn: float | None
    memory_tokens_per_turn: float | None = None
    """Of facts that were recalled, estimated."""
    memory_unavailable: int | None = 0
    """Turns that had to do without their memory."""
    fallback_rate: float | None
    retrieval_steps: int | UnsetType | None = UNSET
    """Only of imported answers."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    billed: Sums | UnsetType = UNSET
    """What was asked of a model just now, and is paid for: `llm_calls`, `input_tokens`, `output_tokens`, `cost_usd`."""
    latency_s: Latency
    """`mean`, `p50` and `p95` of its turns, in seconds."""
    phases: dict[str, Sums]
    """`calls` of every kind, `input_tokens`, `output_tokens` and `seconds`."""
    scores: dict[str, MetricSummary]
    ingest: Sums | UnsetType = UNSET
    """What of the sums went into filling memories; only there where the flow filled them."""

    def per_turn(self, name: str) -> float | None:
        """The sum `name` in shares of a turn."""
        total: float | UnsetType | None = getattr(self, name)
        return None if total is None or total is UNSET or not self.turns else total / self.turns


class Reuse(Struct, frozen=True, kw_only=True):
    """What a run took from recordings, and what it asked anew."""

    reused: int
    new: int
    billed: Billed
    missing: int
    """What a replay was asked for and did not have."""
    causes: dict[str, int]
    """Why calls were not recorded."""
    diverged: list[dict[str, Any]]
    """The first of them in a conversation: `flow`, `conversation`, `epoch`, `turn`, `cause` and `why`."""


class Quarantined(Struct, frozen=True, order=True):
    """A conversation whose calls do not add up, and why; `--resume` plays it again."""

    flow: str
    conversation: str
    epoch: int
    cause: str


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
    quarantined: list[Quarantined] | UnsetType = UNSET
    flows: dict[str, FlowSummary]
    secrets: int | UnsetType = UNSET
    """Texts of the run folder out of which a secret was taken; only there where one was."""
    limits: dict[str, dict[str, Any]] | UnsetType = UNSET
    """Of models that were asked: `per_minute` requests and tokens, as far as known, how many calls were `answered` and
    `refused`, and the seconds they `waited_s`."""


def columns(record: Struct) -> dict[str, Any]:
    """The fields of a record in order, without those that are UNSET."""
    return {name: value for name, value in asdict(record).items() if value is not UNSET}


_encode = msgspec.json.Encoder().encode


def encode_line(record: Any) -> bytes:
    """A record as a line of JSON; of half a surrogate pair, which a model may write, its escape."""
    try:
        return _encode(record) + b"\n"
    except (TypeError, ValueError, OverflowError):
        return encode(record).encode("utf-8", "backslashreplace") + b"\n"


def encode(record: Any, indent: int | None = None) -> str:
    """A record as JSON; a number that JSON has no word for, such as NaN in what a flow handed on, is null."""
    try:
        return json.dumps(record, default=_plain, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(record, default=_plain), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False, indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return columns(value)
    return to_json(value)
