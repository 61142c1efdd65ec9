"""What is measured on a turn: one list for tables, comparisons and the gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentlab.core.errors import RunError
from agentlab.evals.results.run import Run

Key = tuple[str, int, int]
"""Conversation, turn, epoch."""
Row = dict[str, float | None]
"""Measure -> value of one turn; None is unknown. A metric that does not apply to the turn is not there."""


@dataclass(frozen=True)
class Measure:
    """A column of `Run.turns` or a metric of `Run.scores`; `format` is for its mean over turns."""

    name: str
    title: str
    format: str
    better: Literal["higher", "lower"] = "lower"

    def show(self, value: float | None) -> str:
        return "-" if value is None else format(value, self.format)


COSTS = (
    Measure("failed", "failed turns", ".3f"),
    Measure("llm_calls", "LLM calls / turn", ".2f"),
    Measure("embedding_calls", "embedding calls / turn", ".2f"),
    Measure("tool_calls", "tool calls / turn", ".2f"),
    Measure("input_tokens", "input tokens / turn", ".0f"),
    Measure("output_tokens", "output tokens / turn", ".0f"),
    Measure("cost_usd", "cost USD / turn", ".6f"),
    Measure("latency_s", "latency s", ".2f"),
)
_COSTS = {measure.name: measure for measure in COSTS}


def measure(name: str) -> Measure:
    """A cost by its name; any other name is a quality metric, of which more is better."""
    return _COSTS.get(name) or Measure(name, name, ".3f", "higher")


def in_order(names: Iterable[str]) -> list[str]:
    """Quality metrics first, in the order given, then the costs."""
    names = list(dict.fromkeys(names))
    return [n for n in names if n not in _COSTS] + [n for n in _COSTS if n in names]


def measured(run: Run) -> dict[str, dict[Key, Row]]:
    """Flow label -> turn -> its measures, in the order the run's summary names the flows."""
    flows: dict[str, dict[Key, Row]] = {label: {} for label in run.summary["flows"]}
    for row in run.turns.to_dict("records"):
        flows[row["flow"]][_key(row)] = {name: _known(row[name]) for name in _COSTS}
    for row in run.scores.to_dict("records"):
        flows[row["flow"]][_key(row)][row["metric"]] = _known(row["value"])
    return flows


def _key(row: Mapping[Any, Any]) -> Key:
    return str(row["conversation"]), int(row["turn"]), int(row["epoch"])


def _known(value: Any) -> float | None:
    """pandas keeps an unknown number as NaN."""
    return None if value is None or not np.isfinite(value) else value


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One measure on the same turns of two sides."""

    measure: Measure
    keys: tuple[Key, ...]
    a: tuple[float | None, ...]
    b: tuple[float | None, ...]

    @property
    def clusters(self) -> list[str]:
        return [conversation for conversation, _, _ in self.keys]

    @property
    def differences(self) -> list[float]:
        """B - A, a number a turn; empty where one of them is not known, for a part is not the whole.

        To twelve places: .9 - .7 and .8 - .6 are one loss, and are not to differ by a rounding error.
        """
        known = [(x, y) for x, y in zip(self.a, self.b, strict=True) if x is not None and y is not None]
        return [round(y - x, 12) for x, y in known] if len(known) == len(self.keys) else []


def pair_up(name: str, a: Mapping[Key, Row], b: Mapping[Key, Row]) -> Paired:
    """The measure on the turns of `a`, all of which must be in `b`; raises RunError where one side was not scored."""
    for key in sorted(a):
        if (name in a[key]) != (name in b[key]):
            raise RunError(f"{turn_name(key)} was scored for {name} on one side only; the scores are not of one making")
    keys = tuple(key for key in sorted(a) if name in a[key])
    return Paired(
        measure=measure(name),
        keys=keys,
        a=tuple(a[key][name] for key in keys),
        b=tuple(b[key][name] for key in keys),
    )


def brief(value: float | None, sign: str = "") -> str:
    """A difference to three digits: the margin of a token count may be half a token."""
    if value is None:
        return "-"
    value = 0.0 if abs(value) < 1e-9 else value  # a rounding error
    return format(value, f"{sign}.0f" if abs(value) >= 1000 else f"{sign}.3g")


def turn_name(key: Key) -> str:
    return f"turn {key[1]} of {key[0]}" + (f" in epoch {key[2]}" if key[2] else "")


def mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def summary_rows(flows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """The table of a run, costs and scores: a title and one cell a flow, from the flows of `summary.json`."""

    def per_turn(title: str, key: str) -> tuple[str, list[str]]:
        cells = ["-" if f[key] is None else format(f[key] / f["turns"], _COSTS[key].format) for f in flows]
        return title, cells

    calls, tokens = COSTS[1:4], COSTS[4:6]
    costs = [
        ("turns (failed)", [f"{f['turns']} ({f['errors']})" for f in flows]),
        *(per_turn(m.title, m.name) for m in calls),
        *_memory_rows(flows),
        ("fallback rate", [f"{f['fallback_rate']:.2f}" for f in flows]),
        *(per_turn(m.title, m.name) for m in tokens),
        ("cost USD", ["-" if f["cost_usd"] is None else f"{f['cost_usd']:.4f}" for f in flows]),
        ("latency s, mean (p95)", [f"{f['latency_s']['mean']:.1f} ({f['latency_s']['p95']:.1f})" for f in flows]),
    ]
    scores = []
    for metric in dict.fromkeys(metric for f in flows for metric in f["scores"]):
        graded = [f["scores"].get(metric) for f in flows]
        n = max(score["n"] for score in graded if score)
        scores.append((f"{metric} (n={n})", [_score(score) for score in graded]))
    return costs, scores


def _memory_rows(flows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Where a flow has long-term memory: operations on it, and tokens of facts that it put before the model."""
    if not any(flow["memory_ops"] or flow.get("memory_unavailable") for flow in flows):
        return []
    operations = [f"{flow['memory_ops'] / flow['turns']:.2f}" for flow in flows]
    # Runs of format 1 do not say how much was recalled.
    tokens = [flow.get("memory_tokens_per_turn") for flow in flows]
    rows = [
        ("memory operations / turn", operations),
        ("memory tokens / turn", ["-" if count is None else f"{count:.0f}" for count in tokens]),
    ]
    away = [flow.get("memory_unavailable", 0) for flow in flows]
    return [*rows, ("turns without their memory", [str(count) for count in away])] if any(away) else rows


def _score(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "-"
    interval = "" if score["ci95"] is None else " [{:.2f}, {:.2f}]".format(*score["ci95"])
    return f"{score['mean']:.2f}{interval}"
