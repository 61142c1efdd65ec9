"""Content of `summary.json`, from the running sums of a run, with its reused and new calls.

All figures are folds over the ledger: an event has its origin, and a notice gives the cause of each recording miss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from agentlab.core import plugins
from agentlab.core.constants import IMPORTED, MEMORY_UNAVAILABLE
from agentlab.core.events import PHASES, Event, MemoryOp, Notice
from agentlab.core.messages import CHARACTERS_PER_TOKEN
from agentlab.core.trace import Costs, Totals, Trace, critical_path, exact_sum
from agentlab.evals.stats.intervals import Column, mean_interval, score_ends
from agentlab.evals.stats.statistics import by_cluster, quantile
from agentlab.evals.store.fold import FlowFold, in_order, recording_misses
from agentlab.evals.store.measures import LOOKUPS
from agentlab.evals.store.rows import Billed, FlowSummary, Latency, MetricSummary, Reuse, Summary, Sums

PER_TURN = ("llm_calls", "embedding_calls", "tool_calls")


def summarise(
    header: Mapping[str, Any], played: Mapping[str, FlowFold], *, complete: bool, secrets: int = 0
) -> Summary:
    """Return the summary of a run; `played` maps a flow label to its running sums."""
    spec = header["spec"]
    recordings = reuse([*played.values()], spec["mode"])
    missing = recordings is not None and recordings.missing > 0
    labels = [flow["label"] or flow["flow"] for flow in spec["flows"]]
    flows = {label: played[label] for label in labels if label in played and played[label].counts["turns"]}
    own = [
        label for label, flow in zip(labels, spec["flows"], strict=True) if plugins.is_shipped("flows", flow["flow"])
    ]
    visible = [*flows] if spec.get("lookup") else own
    return Summary(
        run_id=header["run_id"],
        status="complete" if complete and not missing else "partial",
        datasets=list(header["datasets"]),
        conversations=sum(dataset["conversations"] for dataset in header["datasets"].values()),
        turns=sum(flow.counts["turns"] for flow in played.values()),
        model=header["models"].get(spec["model"], spec["model"]),
        mode=spec["mode"],
        recordings=recordings,
        flows=_summarise_flows(flows, visible),
        secrets=secrets or UNSET,
    )


def _summarise_flows(flows: Mapping[str, FlowFold], visible: Sequence[str]) -> dict[str, FlowSummary]:
    turns = {(label, name): in_order(column) for label, flow in flows.items() for name, column in flow.scores.items()}
    scores = {key: summarise_score(rows[:, 4], rows[:, 0]) for key, rows in turns.items()}
    for label, name in turns:
        flow = flows[label]
        hidden = label not in visible and not flow.counts["can_search"] and not flow.steps
        if name in LOOKUPS and hidden and flow.counts["errors"] < flow.counts["turns"]:
            scores[label, name] = replace(scores[label, name], mean=None, ci95=None)
    # In the order of the first turn that has the metric, and of its position there.
    order = sorted(turns, key=lambda key: [*turns[key][0, :4]])
    return {
        label: _summarise_flow(flow, {name: scores[label, name] for each, name in order if each == label})
        for label, flow in flows.items()
    }


def _summarise_flow(flow: FlowFold, scores: dict[str, MetricSummary]) -> FlowSummary:
    n = flow.counts["turns"]
    totals, billed = Totals.sum(flow.totals), Totals.sum(flow.billed)
    # The session did not count the costs of a flow that bypasses it.
    uncounted = totals == Totals() and flow.counts["errors"] < n
    sums: dict[str, Any] = dict.fromkeys(asdict(totals)) if uncounted else asdict(totals)
    fields: dict[str, Any] = {
        "memory_tokens_per_turn": flow.counts["memory_tokens"] / n,
        "memory_unavailable": flow.counts["memory_unavailable"],
        "fallback_rate": flow.counts["fallbacks"] / n,
        "billed": {name: getattr(billed, name) for name in ("llm_calls", "input_tokens", "output_tokens", "cost_usd")},
    }
    if flow.steps:  # an import: its source reports none of these
        fields = {"memory_unavailable": None, "fallback_rate": None, "retrieval_steps": exact_sum(flow.steps)}
    latency: Latency = {"mean": None, "p50": None, "p95": None}
    if not flow.counts["unknown_latencies"] and not uncounted:
        latencies = in_order(flow.latencies)[:, 4]
        mean, p50, p95 = float(np.mean(latencies)), quantile(latencies, 0.5), quantile(latencies, 0.95)
        latency = {"mean": mean, "p50": p50, "p95": p95}
    per_turn: dict[str, Any] = {
        f"{name}_per_turn": None if (total := sums[name]) is None else total / n for name in PER_TURN
    }
    ingest: Sums | UnsetType = UNSET
    if flow.ingest:
        ingest = {**flow.ingest_counts, **asdict(Totals.sum(flow.ingest))}
    return FlowSummary(
        turns=n,
        errors=flow.counts["errors"],
        stopped=dict(sorted(flow.stopped.items())) or UNSET,
        **{name: total for name, total in sums.items() if name != "seconds"},
        **per_turn,
        **fields,
        latency_s=latency,
        phases=phase_sums({phase: Totals.sum(parts) for phase, parts in flow.phases.items()}),
        scores=scores,
        ingest=ingest,
    )


def phase_sums(parts: Mapping[str, Totals]) -> dict[str, Sums]:
    """Return the sums of each phase, in the order of `PHASES`."""
    return {
        phase: {
            "calls": exact_sum((part.llm_calls, part.embedding_calls, part.tool_calls, part.memory_ops)),
            **{name: getattr(part, name) for name in ("input_tokens", "output_tokens", "seconds")},
        }
        for phase in PHASES
        if (part := parts.get(phase)) is not None
    }


def costs_of(events: Sequence[Event]) -> dict[str, Any]:
    """Return the fields of a turn row that come from its events."""
    costs = Costs.of(events)
    recalled = chain.from_iterable(e.facts for e in events if isinstance(e, MemoryOp) and e.op == "recall")
    unavailable = any(isinstance(event, Notice) and event.name == MEMORY_UNAVAILABLE for event in events)
    return {
        "totals": costs.totals,
        "latency_s": critical_path(events),
        "memory_tokens": sum(len(fact.text) // CHARACTERS_PER_TOKEN for fact in recalled),
        "memory_unavailable": int(unavailable),
        "phases": phase_sums(costs.phases),
    }


def summarise_score(values: Sequence[float] | np.ndarray, clusters: Sequence[str] | np.ndarray) -> MetricSummary:
    """Return mean, 95 % interval and count of one score per turn and the conversation of each turn.

    A mean with an unknown part (NaN) is unknown. Undecided turns (infinite) are left out and counted.
    """
    decided = ~np.isinf(np.asarray(values, dtype=float))
    scores, clusters = np.asarray(values, dtype=float)[decided], np.asarray(clusters)[decided]
    counts: dict[str, Any] = {"n": len(scores), "undecided": int((~decided).sum()) or UNSET}
    if np.isnan(scores).any() or not len(scores):
        return MetricSummary(mean=None, ci95=None, **counts)
    mean, interval = mean_interval(Column(*by_cluster(scores, clusters), score_ends(scores)))
    return MetricSummary(mean=mean, ci95=interval, **counts)


MAX_MISSES = 5
"""Number of diverged conversations in `reuse_lines`."""


def reuse(flows: Sequence[FlowFold], mode: str) -> Reuse | None:
    """Return the `recordings` part of `summary.json`; None for a live run or an import."""
    if mode in ("live", IMPORTED):
        return None
    misses = sorted((each for flow in flows for each in flow.misses), key=itemgetter(0))
    causes = Counter(cause for _, causes, _ in misses for cause in causes)
    causes += Counter({"text to be graded": sum(flow.counts["ungraded"] for flow in flows)})
    if mode == "replay":
        causes += Counter({"outcome of a search or tool": sum(flow.counts["untimed"] for flow in flows)})
    billed = Totals.sum(chain.from_iterable(flow.billed for flow in flows))
    return Reuse(
        reused=sum(flow.counts["reused"] for flow in flows),
        new=sum(flow.counts["new"] for flow in flows),
        billed=Billed(input_tokens=billed.input_tokens, output_tokens=billed.output_tokens, cost_usd=billed.cost_usd),
        missing=causes.total() if mode == "replay" else 0,
        causes=dict(causes.most_common()),
        diverged=[first for _, _, first in misses],
    )


def misses(traces: Iterable[Trace]) -> list[str]:
    """Return one line for each recording miss, with all differences from the nearest recording."""
    return [
        f"{t.flow} {t.conversation} turn {notice.turn + 1}: {notice.text}"
        for t in traces
        for notice in recording_misses(t)
    ]


def reuse_lines(reused: Reuse) -> list[str]:
    """Return a few lines that summarise reuse for people."""
    numbers = {name: "?" if number is None else number for name, number in reused.billed.items()}
    usd = "" if reused.billed["cost_usd"] is None else f", ${numbers['cost_usd']:.4f}"
    tokens = f"{numbers['input_tokens']} tokens in, {numbers['output_tokens']} out"
    lines = [f"model calls: {reused.reused} reused, {reused.new} new ({tokens}{usd} billed now)"]
    if reused.missing:
        lines.append(f"NOT RECORDED: {reused.missing} calls; their turns failed. --mode auto records the missing ones")
    lines += [f"  {count} x {cause}" for cause, count in reused.causes.items()]
    for miss in reused.diverged[:MAX_MISSES]:
        lines.append(f"{miss['flow']} {miss['conversation']} from turn {miss['turn'] + 1} on: {miss['why']}")
    rest = len(reused.diverged) - MAX_MISSES
    return [*lines, *([f"... and {rest} more conversations"] if rest > 0 else [])]
