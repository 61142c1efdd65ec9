"""Measures of a turn: one list for tables, comparisons and the gate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import UNSET

from agentlab.core import plugins
from agentlab.core.constants import JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX
from agentlab.core.errors import ConfigError, RunError
from agentlab.data.datasets import Dataset
from agentlab.evals.store.rows import FlowSummary, MetricSummary, TurnRow

TurnKey = tuple[str, int, int]
"""Conversation, turn, epoch."""
Values = dict[str, float | None]
"""Measure -> value of one turn. None is unknown; a metric that does not apply to the turn is missing."""
RETRIEVAL_STEPS = "retrieval_steps"
MAX_VALUE = 1e15
"""Largest value that is compared: its sums and squares do not overflow."""


@dataclass(frozen=True)
class Measure:
    """Column of `Run.turns` or metric of `Run.scores`; `format` is the format of its mean over turns."""

    name: str
    title: str
    format: str
    better: Literal["higher", "lower"] = "lower"

    @property
    def is_bounded(self) -> bool:
        """Return True for a score or a failure, False for a cost."""
        return self.better == "higher" or self.name == "failed"

    def show(self, value: float | None) -> str:
        return _cell(value, self.format)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


COSTS = (
    Measure("failed", "failed turns", ".3f"),
    Measure("llm_calls", "LLM calls / turn", ".2f"),
    Measure("embedding_calls", "embedding calls / turn", ".2f"),
    Measure("tool_calls", "tool calls / turn", ".2f"),
    Measure("input_tokens", "input tokens / turn", ".0f"),
    Measure("output_tokens", "output tokens / turn", ".0f"),
    Measure("cost_usd", "cost USD / turn", ".6f"),
    Measure("latency_s", "latency s", ".2f"),
    Measure(RETRIEVAL_STEPS, "retrieval steps / turn", ".2f"),
)
LATENCY = "latency_s"
_COSTS = {measure.name: measure for measure in COSTS}


IMPORTED_PREFIXES = (RETRIEVAL_STEPS, "published_")
"""Prefixes of the measures that only an import has."""


def is_one_sided(name: str, one: Mapping[TurnKey, Values], other: Mapping[TurnKey, Values]) -> bool:
    """Return True for human labels, and for a measure of imported runs that one of the two sides lacks entirely."""
    return name.startswith(LABEL_METRIC_PREFIX) or (
        name.startswith(IMPORTED_PREFIXES)
        and any(all(name not in row for row in side.values()) for side in (one, other))
    )


def measure(name: str) -> Measure:
    """Return the cost with this name; any other name is a quality metric, where higher is better."""
    return _COSTS.get(name) or Measure(name, name, ".3f", "higher")


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names without duplicates: quality metrics in the given order, then the costs."""
    names = list(dict.fromkeys(names))
    return [n for n in names if n not in _COSTS] + [n for n in _COSTS if n in names]


LOOKUPS = (
    "lookup_accuracy",
    "retrieval_recall",
    "retrieval_mrr",
    "retrieval_ndcg",
    "context_precision",
    "groundedness",
)
"""Metrics that read the searches of a flow; unknown for a flow whose searches the session does not see."""
ANSWER = "answer_correctness", "answer_f1"
"""Quality of an answer: the first graded metric is primary. `results/LOG.md` compares both with labels."""
QUALITIES = (*ANSWER, "refusal_accuracy", "tool_f1", "lookup_accuracy", "memory_recall", "memory_write_recall")
"""Quality metrics in order of preference: the first three graded ones are primary if a spec names none."""

ABSTAINING = ("answer_correctness", "refusal_accuracy", "answered")
"""Metrics whose scorer may leave a turn undecided: a score without a value. Such a turn counts in no mean."""


STEPS = (
    *("lookup_accuracy", "memory_recall", "memory_write_recall", "memory_write_precision", "memory_restraint"),
    *("no_stale_fact", "duplicates_prevented", "retrieval_recall", "retrieval_mrr", "retrieval_ndcg"),
    *("context_precision", "citation_precision", "citation_recall", "groundedness", "answered"),
)
"""Quality metrics of a step on the way to the answer; every other one grades the answer or the calls."""


def is_quality(name: str) -> bool:
    """Return True for a quality metric, and for failed turns."""
    return name not in _COSTS or name == "failed"


def answer_measure(primary: Sequence[str]) -> str | None:
    """Return the first primary measure that grades the answer; None if all are costs or measures of a step."""
    return next((name for name in primary if name not in _COSTS and name not in STEPS), None)


def primary_family(flows: Iterable[Mapping[TurnKey, Values]], declared: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the primary measures: those declared, or up to three qualities and one cost that `flows` have.

    If turns failed, `failed` is one of the three. Otherwise a flow could win on cost because its failed turns
    make fewer calls. Raises RunError if a declared measure does not exist.
    """
    rows = [row for turns in flows for row in turns.values()]
    names = dict.fromkeys(name for row in rows for name in row)
    plugins.check_names("measure", declared, names, "primary: ", RunError)
    if declared:
        return tuple(declared)
    names = dict.fromkeys(name for name in names if not name.startswith(LABEL_METRIC_PREFIX))
    graded = [name for name in names if name not in _COSTS and any(row.get(name) is not None for row in rows)]
    replaced = ANSWER[1:] if ANSWER[0] in graded else ()
    qualities = [name for name in QUALITIES if name in graded and name not in replaced] or graded
    costs = [row.get("cost_usd") for row in rows]
    cost = ["cost_usd"] if None not in costs and any(costs) else ["llm_calls"]
    if all(row.get(cost[0]) is None for row in rows):
        cost = []  # imported answers may have no cost
    primary = [*qualities[:2], "failed"] if any(row.get("failed") for row in rows) else qualities[:3] or ["failed"]
    return (*primary, *cost)


def check_primary(
    primary: Sequence[str],
    scorers: Sequence[Any],
    datasets: Sequence[Dataset],
    also: Sequence[str] = (),
    hint: str = "",
) -> None:
    """Raise ConfigError if no turn of the data will have a primary measure; `also` names further measures."""
    turns = [turn for dataset in datasets for each in dataset.conversations for turn in each.turns if turn.scored]
    # A judge grades the run only after the run has ended.
    for name in (name for name in primary if not name.startswith(JUDGE_METRIC_PREFIX)):
        graded = dict.fromkeys(metric for scorer in scorers for turn in turns for metric in scorer.metrics(turn))
        names = [*graded, *also, *(cost.name for cost in COSTS if cost.name != RETRIEVAL_STEPS)]
        if name not in names:
            raise ConfigError(f"primary: {plugins.unknown_name('measure of these data sets', name, names)}{hint}")


def latency_is_comparable(one: str, other: str) -> bool:
    """Return True if the latency of two runs with these modes can be compared; live seconds differ from run to run."""
    return "replay" in (one, other) and {one, other} <= {"record", "replay"}


def values_of(turns: Iterable[TurnRow]) -> dict[str, dict[TurnKey, Values]]:
    """Return flow label -> turn -> measures."""
    flows: defaultdict[str, dict[TurnKey, Values]] = defaultdict(dict)
    for row in turns:
        flows[row.flow][row.key] = measures_of(row)
    return dict(flows)


def measures_of(row: TurnRow) -> Values:
    costs = row.costs()
    scores = (row.scores or {}).items()
    decided = {name: score.value for name, score in scores if score.value is not None or name not in ABSTAINING}
    return {name: costs[name] for name in _COSTS if name in costs} | decided


def format_number(value: float | None, sign: str = "") -> str:
    """Format a difference with three digits; the margin of a token count may be half a token."""
    if value is None:
        return "-"
    value = 0.0 if abs(value) < 1e-9 else value  # a rounding error
    return format(value, f"{sign}.0f" if abs(value) >= 1000 else f"{sign}.3g")


def turn_name(key: TurnKey) -> str:
    """Return the name of a turn; its number starts at 1."""
    return f"turn {key[1] + 1} of {key[0]}" + (f" in epoch {key[2]}" if key[2] else "")


Row = tuple[str, str, list[str]]
"""Row of a run's table: name of the measure, title, one cell per flow."""


def summary_rows(flows: Sequence[FlowSummary]) -> tuple[list[Row], list[Row]]:
    """Return the rows of a run's table: costs, then scores."""

    def per_turn(costs: Sequence[Measure]) -> list[Row]:
        return [(cost.name, cost.title, [cost.show(flow.per_turn(cost.name)) for flow in flows]) for cost in costs]

    calls, tokens = COSTS[1:4], COSTS[4:6]
    costs = [
        ("failed", "turns (failed)", [f"{flow.turns} ({flow.errors})" for flow in flows]),
        *([("stopped", "replies cut short", [*map(stops_of, flows)])] if any(flow.stopped for flow in flows) else ()),
        *per_turn(calls),
        *_memory_rows(flows),
        ("fallback_rate", "fallback rate", [_cell(flow.fallback_rate, ".2f") for flow in flows]),
        *per_turn(tokens),
        *(per_turn(COSTS[8:]) if any(flow.retrieval_steps is not UNSET for flow in flows) else ()),
        ("cost_usd", "cost USD", [_cell(flow.cost_usd, ".4f") for flow in flows]),
        ("latency_s", "latency s, mean (p95)", [_latency(flow) for flow in flows]),
    ]
    scores = []
    for metric in dict.fromkeys(metric for flow in flows for metric in flow.scores):
        graded = [flow.scores.get(metric) for flow in flows]
        n = max(score.n for score in graded if score)
        scores.append((metric, f"{metric} (n={n})", [score_text(score) for score in graded]))
    return costs, scores


def stops_of(flow: FlowSummary) -> str:
    """Return the number of replies that are not whole, by cause; "0" without any."""
    return ", ".join(f"{count} by {cause}" for cause, count in (flow.stopped or {}).items()) or "0"


def _memory_rows(flows: Sequence[FlowSummary]) -> list[Row]:
    """Return the rows on long-term memory, if any flow has one: operations, and tokens of recalled facts."""
    if not any(flow.memory_ops or flow.memory_unavailable for flow in flows):
        return []
    rows = [
        ("memory_ops", "memory operations / turn", [COSTS[1].show(flow.per_turn("memory_ops")) for flow in flows]),
        ("memory_tokens", "memory tokens / turn", [_cell(flow.memory_tokens_per_turn, ".0f") for flow in flows]),
    ]
    if any(flow.memory_unavailable for flow in flows):
        counts = [str(flow.memory_unavailable) for flow in flows]
        rows.append(("memory_unavailable", "turns without their memory", counts))
    return rows


def _latency(flow: FlowSummary) -> str:
    mean, p95 = flow.latency_s["mean"], flow.latency_s["p95"]
    if mean is None or p95 is None:
        return "-"
    digits = 1 if mean >= 1 or not mean else 2
    return f"{mean:.{digits}f} ({p95:.{digits}f})"


def score_text(score: MetricSummary | None) -> str:
    """Return mean, 95 % interval, the number of turns if all are right or wrong, and the undecided; "-" if unknown."""
    undecided = f" ({score.undecided} not decided)" if score and score.undecided else ""
    if score is None or score.mean is None:
        return f"-{undecided}"
    interval = "" if score.ci95 is None else " [{:.2f}, {:.2f}]".format(*score.ci95)
    equal = {1.0: f" (all {score.n} right)", 0.0: f" (none of {score.n} right)"}.get(score.mean, "")
    return f"{score.mean:.2f}{interval}{equal}{undecided}"
