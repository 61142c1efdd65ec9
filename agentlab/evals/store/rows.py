"""Types of the files of a run folder, and their encoding as JSON.

    turns.jsonl     one TurnRow per line, with its costs and scores
    calls.jsonl     one event per line, with flow, conversation, epoch and take (see `agentlab.evals.store.ledger`)
    summary.json    a Summary

Fields are written in the order of this file. An unknown value is None, and null in the file. A field that older runs
lack is UNSET and not written. `from_json` takes JSON that `json` has parsed: msgspec refuses NaN and half a surrogate
pair, which a model may write.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import asdict, fields

from agentlab.core.messages import Reply, to_json
from agentlab.core.trace import Totals

TrialKey = tuple[str, str, int]
"""Flow label, conversation id, epoch."""
Sums = dict[str, int | float | None]
"""Sums by name; None if a part is unknown."""
UNKNOWN = "unknown"
"""Hash of a grader whose source is unavailable."""
RESTART_MARKER = -1
"""Turn number of a row without a turn: the rows of its attempt replace all earlier ones."""


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
    """Fields of `run.json` that programs read; the others are for people."""

    format: int
    run_id: str
    spec: _Spec
    datasets: dict[str, _Data]
    models: dict[str, str]
    graders: dict[str, str]
    sealed: bool = False
    """True if the summary has checksums once the run has ended."""


class ScoreValue(Struct, frozen=True, gc=False):
    """Value of a metric for one turn."""

    value: float | bool | None
    """None if the scorer has no value, or if the source of an imported answer does not report it."""


class StoredScore(ScoreValue, frozen=True, gc=False):
    """Value of a metric for one turn, and the reason."""

    reason: str

    @property
    def text(self) -> str:
        unknown = "not decided" if self.reason.startswith("not decided") else "?"
        return unknown if self.value is None else f"{float(self.value):.2f}"


class TurnRow(Struct, frozen=True, kw_only=True):
    """Played or imported turn: its message and reply, costs and scores."""

    flow: str
    dataset: str
    conversation: str
    turn: int
    category: Any = UNSET
    """Conversation's category in its data set."""
    epoch: int
    take: int
    """Number of the attempt, from 0."""
    user: str
    reply: Reply | None
    """None if the turn failed; `error` then gives the reason."""
    error: str | None
    wall_seconds: float | None
    """None for an imported answer."""
    totals: Totals
    latency_s: float | None
    """Seconds of the longest path through its events; for an imported answer the value of its source."""
    memory_tokens: int | None
    """Estimated tokens of recalled facts."""
    memory_unavailable: int | None
    """1 if its memory was unavailable."""
    phases: dict[str, Sums]
    """Sums per phase, as in FlowSummary."""
    scores: dict[str, StoredScore] | None = None
    """By metric; None if a scorer failed and the turn is not graded yet."""
    retrieval_steps: int | UnsetType | None = UNSET
    """Only for an imported answer whose source reports it."""
    passages: list[str] | UnsetType = UNSET
    """Ids of the documents behind an imported answer, if its source reports them."""
    published: dict[str, Any] | UnsetType = UNSET
    """Notes of the source on an imported answer: numbers, labels, ratings by rater."""

    @property
    def trial(self) -> TrialKey:
        return self.flow, self.conversation, self.epoch

    @property
    def key(self) -> tuple[str, int, int]:
        return self.conversation, self.turn, self.epoch

    def costs(self) -> dict[str, Any]:
        """Return measure -> cost of the turn; None is unknown."""
        figures = {**asdict(self.totals), "failed": int(self.error is not None), "latency_s": self.latency_s}
        return figures if self.retrieval_steps is UNSET else figures | {"retrieval_steps": self.retrieval_steps}


_TEXTS = ("user", "reply", "phases", "scores", "passages", "published")
TurnFigures: type[TurnRow] = defstruct(  # type: ignore[assignment]
    "TurnFigures",
    [(f.name, f.type) if f.required else (f.name, f.type, f.default) for f in fields(TurnRow) if f.name not in _TEXTS]
    + [("scores", dict[str, ScoreValue] | None, None)],
    namespace={name: getattr(TurnRow, name) for name in ("trial", "key", "costs")},
    frozen=True,
    kw_only=True,
    gc=False,
)
"""Turn without its texts, as tables and comparisons of large runs keep it in memory; JSON has no cycles to collect."""


class MetricSummary(Struct, frozen=True, kw_only=True):
    mean: float | None
    """None if a value is unknown."""
    ci95: tuple[float, float] | None
    """None if there are too few conversations for an interval."""
    n: int
    """Turns with a value."""
    undecided: int | UnsetType = UNSET
    """Turns that the scorer left undecided; they count in no mean."""


class Latency(TypedDict):
    mean: float | None
    p50: float | None
    p95: float | None


class Billed(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class FlowSummary(Struct, frozen=True, kw_only=True):
    """Costs and scores of a flow; the sums are over all its turns."""

    turns: int
    errors: int
    stopped: dict[str, int] | UnsetType = UNSET
    """Replies that are not whole, by cause: `length`, `content filter`, `server`; only if there are any."""
    llm_calls: int | None
    embedding_calls: int | None
    tool_calls: int | None
    memory_ops: int | None
    llm_calls_per_turn: float | None
    embedding_calls_per_turn: float | None
    tool_calls_per_turn: float | None
    memory_tokens_per_turn: float | None = None
    """Estimated tokens of recalled facts."""
    memory_unavailable: int | None = 0
    """Turns whose memory was unavailable."""
    fallback_rate: float | None
    retrieval_steps: int | UnsetType | None = UNSET
    """Only for imported answers."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    billed: Sums | UnsetType = UNSET
    """Billed model calls of this run: `llm_calls`, `input_tokens`, `output_tokens`, `cost_usd`."""
    latency_s: Latency
    """`mean`, `p50` and `p95` over its turns, in seconds."""
    phases: dict[str, Sums]
    """Phase -> `calls` of every kind, `input_tokens`, `output_tokens` and `seconds`."""
    scores: dict[str, MetricSummary]
    ingest: Sums | UnsetType = UNSET
    """Part of the sums that filled memories; only if the flow filled them."""

    def per_turn(self, name: str) -> float | None:
        """Return the sum `name` divided by the number of turns; None if unknown."""
        total: float | UnsetType | None = getattr(self, name)
        return None if total is None or total is UNSET or not self.turns else total / self.turns


class Reuse(Struct, frozen=True, kw_only=True):
    """Reused and new model calls of a run."""

    reused: int
    new: int
    billed: Billed
    missing: int
    """Recording misses of a replay."""
    causes: dict[str, int]
    """Causes of recording misses, with their counts."""
    diverged: list[dict[str, Any]]
    """First miss of each conversation: `flow`, `conversation`, `epoch`, `turn`, `cause` and `why`."""


class Quarantined(Struct, frozen=True, order=True):
    """Trial whose calls do not add up, and the cause; `--resume` plays it again."""

    flow: str
    conversation: str
    epoch: int
    cause: str


class Summary(Struct, frozen=True, kw_only=True):
    """Stable machine interface of a run."""

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
    """Number of redacted texts in the run folder; unset if there is none."""
    limits: dict[str, dict[str, Any]] | UnsetType = UNSET
    """Model -> its rate limits `per_minute` if known, calls `answered` and `refused`, and seconds `waited_s`."""


def columns(record: Struct) -> dict[str, Any]:
    """Return the fields of a record in order, without those that are UNSET."""
    return {name: value for name, value in asdict(record).items() if value is not UNSET}


_encode = msgspec.json.Encoder().encode


def encode_line(record: Any) -> bytes:
    """Return a record as a line of JSON; half a surrogate pair, which a model may write, is escaped."""
    try:
        return _encode(record) + b"\n"
    except (TypeError, ValueError, OverflowError):
        return encode(record).encode("utf-8", "backslashreplace") + b"\n"


def encode(record: Any, indent: int | None = None) -> str:
    """Return a record as JSON; a number that JSON cannot express, such as NaN, is null."""
    try:
        return json.dumps(record, default=_plain, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(record, default=_plain), parse_constant=lambda name: None)
        return json.dumps(finite, ensure_ascii=False, indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return columns(value)
    return to_json(value)
