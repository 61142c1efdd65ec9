"""The content of `summary.json`, folded from the turns, the scores and the ledger of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from agentlab.core.events import PHASES, Notice
from agentlab.core.names import INGEST_FAILED, MEMORY_UNAVAILABLE
from agentlab.core.trace import Totals, Trace, add_up, billed
from agentlab.data.datasets import Dataset
from agentlab.data.memory_sets import INGEST
from agentlab.evals.compare.statistics import by_cluster, mean_intervals
from agentlab.evals.results.reuse import UNGRADED, reuse
from agentlab.evals.results.rows import FlowSummary, MetricSummary, ScoreRow, Summary, Sums
from agentlab.evals.results.run import Run


def summarise(run: Run, scores: Sequence[ScoreRow], datasets: Sequence[Dataset], *, complete: bool) -> Summary:
    header, played = run.folder.header, run.folder.played
    spec = header["spec"]
    labels = {row.flow for row in played.turns}
    ungraded = sum(score.reason.startswith(UNGRADED) for score in scores)
    reused = reuse(run.traces.values(), [event for _, event in played.abandoned], spec["mode"], ungraded)
    missing = reused is not None and reused.missing > 0
    return Summary(
        run_id=header["run_id"],
        status="complete" if complete and not missing else "partial",
        datasets=[dataset.name for dataset in datasets],
        conversations=sum(len(dataset.conversations) for dataset in datasets),
        turns=len(played.turns),
        model=header["models"].get(spec["model"], spec["model"]),
        mode=spec["mode"],
        recordings=reused,
        flows={
            label: _summarise_flow(run, label, [score for score in scores if score.flow == label])
            for label in (flow["label"] or flow["flow"] for flow in spec["flows"])
            if label in labels
        },
        secrets=played.secrets or UNSET,
    )


def _summarise_flow(run: Run, label: str, scores: Sequence[ScoreRow]) -> FlowSummary:
    costs = [run.costs(row) for row in run.folder.played.turns if row.flow == label]
    n = len(costs)
    traces = [trace for trace in run.traces.values() if trace.flow == label]
    sums = vars(Totals.sum(trace.totals() for trace in traces))
    events = [(trace, event) for trace in traces for event in trace.events]
    lost = [event for flow, event in run.folder.played.abandoned if flow == label]
    paid = billed([*lost, *(event for _, event in events)])
    fallbacks = {(id(trace), event.turn) for trace, event in events if event.phase == "fallback"}
    latencies = [cost["latency_s"] for cost in costs]
    filled = [trace for trace in traces if trace.conversation.startswith(INGEST)]
    return FlowSummary(
        turns=n,
        errors=sum(cost["failed"] for cost in costs),
        **{name: total for name, total in sums.items() if name != "seconds"},
        **{f"{name}_per_turn": sums[name] / n for name in ("llm_calls", "embedding_calls", "tool_calls")},
        memory_tokens_per_turn=sum(cost["memory_tokens"] for cost in costs) / n,
        memory_unavailable=sum(cost["memory_unavailable"] for cost in costs),
        fallback_rate=len(fallbacks) / n,
        billed={name: getattr(paid, name) for name in ("llm_calls", "input_tokens", "output_tokens", "cost_usd")},
        latency_s={
            "mean": float(np.mean(latencies)),
            "p50": float(np.quantile(latencies, 0.5)),
            "p95": float(np.quantile(latencies, 0.95)),
        },
        phases={
            phase: {
                "calls": add_up((part.llm_calls, part.embedding_calls, part.tool_calls, part.memory_ops)),
                **{name: getattr(part, name) for name in ("input_tokens", "output_tokens", "seconds")},
            }
            for phase, part in _phases(traces).items()
        },
        scores=summarise_scores(scores),
        ingest=_summarise_ingest(filled) if filled else UNSET,
    )


def _phases(traces: Sequence[Trace]) -> dict[str, Totals]:
    parts: dict[str, list[Totals]] = defaultdict(list)
    for trace in traces:
        for phase, part in trace.phases().items():
            parts[phase].append(part)
    return {phase: Totals.sum(parts[phase]) for phase in PHASES if phase in parts}


def summarise_scores(scores: Sequence[ScoreRow]) -> dict[str, MetricSummary]:
    """Mean, interval and n of each metric, of the scores of one flow."""
    by_metric: dict[str, list[ScoreRow]] = defaultdict(list)
    for score in scores:
        by_metric[score.metric].append(score)
    columns = [
        by_cluster([float(s.value or 0.0) for s in graded], [s.conversation for s in graded])
        for graded in by_metric.values()
    ]
    return {
        metric: MetricSummary(mean=mean, ci95=interval, n=len(by_metric[metric]))
        for metric, (mean, interval) in zip(by_metric, mean_intervals(columns), strict=True)
    }


def _summarise_ingest(traces: Sequence[Trace]) -> Sums:
    """What of the flow's totals went into filling its memories, in a run with `ingest: flow`."""
    notices = [(trace, event) for trace in traces for event in trace.events if isinstance(event, Notice)]
    away = {(id(trace), notice.turn) for trace, notice in notices if notice.name == MEMORY_UNAVAILABLE}
    return {
        "turns": sum(len(trace.turns()) for trace in traces),
        "errors": sum(notice.name == INGEST_FAILED for _, notice in notices),
        "memory_unavailable": len(away),
        **vars(Totals.sum(trace.totals() for trace in traces)),
    }
