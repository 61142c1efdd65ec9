"""A finished run: scores, the summary, and data frames. All of it is folded from the rows of the run folder.

run = open_run("results/first")
run.turns, run.calls, run.scores        # pandas data frames
run.trace("tools", "laws-001")          # one conversation, event by event
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentlab.core import plugins
from agentlab.core.errors import NotRecorded, RunError
from agentlab.core.events import PHASES, Event, MemoryOp, ModelCall, Notice
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Reply, from_json
from agentlab.core.names import INGEST_FAILED, MEMORY_UNAVAILABLE
from agentlab.core.trace import Totals, Trace, billed, check_conservation, critical_path
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, name_of
from agentlab.data.memory_sets import INGEST, Question, ingest_name
from agentlab.evals.compare.statistics import mean_with_interval
from agentlab.evals.results.reuse import UNGRADED, reuse
from agentlab.evals.run.folder import Play, RunFolder, play_of
from agentlab.evals.scorers import Outcome, Score
from agentlab.workbench.workbench import Workbench

if TYPE_CHECKING:
    import pandas as pd


SCORE = ("flow", "conversation", "turn", "epoch", "metric", "value", "reason")


class Run:
    """What is in a run folder; nothing is kept that the rows do not say."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.path = folder.path

    @property
    def run_id(self) -> str:
        return str(self.folder.header["run_id"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The stable machine interface, as in `summary.json`."""
        file = self.path / "summary.json"
        try:
            summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: the run has not ended; continue it with --resume") from None
        except (OSError, ValueError) as problem:
            raise RunError(f"{file} cannot be read: {problem}") from None
        if not isinstance(summary, dict) or not {"status", "flows", "turns", "model", "datasets"} <= set(summary):
            raise RunError(f"{file} is not the summary of a run")
        return summary

    @cached_property
    def traces(self) -> dict[Play, Trace]:
        return self.folder.traces()

    def trace(self, flow: str, conversation: str, epoch: int = 0) -> Trace:
        try:
            return self.traces[flow, conversation, epoch]
        except KeyError:
            known = sorted({f"{play[0]} {play[1]}" for play in self.traces})
            raise RunError(plugins.unknown("conversation of this run", f"{flow} {conversation}", known)) from None

    @cached_property
    def turns(self) -> pd.DataFrame:
        """One row a turn: what was said, what it cost, latency in seconds."""
        import pandas as pd

        rows = []
        for row in self.folder.turns():
            flat = {key: value for key, value in row.items() if key not in ("reply", "totals")}
            flat["reply"] = (row["reply"] or {}).get("text", "")
            flat |= {
                **row["totals"],
                "failed": int(row["error"] is not None),
                "latency_s": self._latency(row),
                "memory_tokens": self._recalled(row),
                "memory_unavailable": int(self._was_away(row)),
            }
            rows.append(flat)
        if len(rows) != self.summary.get("turns", len(rows)):
            raise RunError(f"{self.path}: turns.jsonl holds {len(rows)} turns, the summary {self.summary['turns']}")
        return pd.DataFrame(rows)

    @cached_property
    def calls(self) -> pd.DataFrame:
        """One row an event of the ledger."""
        import pandas as pd

        rows = []
        for (flow, conversation, epoch), trace in self.traces.items():
            for event in trace.events:
                row: dict[str, Any] = {"flow": flow, "conversation": conversation, "epoch": epoch}
                row |= {"turn": event.turn, "id": event.id, "kind": event.kind, "phase": event.phase}
                row |= {"title": event.title, "detail": event.detail, "seconds": event.seconds}
                row |= {"waited": event.waited, "attempt": event.attempt, "origin": event.origin, "error": event.error}
                if isinstance(event, ModelCall) and event.completion is not None:
                    usage = event.completion.usage
                    row |= {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
                    row |= {"cached_tokens": usage.cached_tokens, "cost_usd": event.cost_usd}
                rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row a turn and metric, with the reason for the value."""
        import pandas as pd

        return pd.DataFrame(list(self.folder.rows("scores.jsonl", SCORE)))

    def _latency(self, row: dict[str, Any]) -> float:
        return critical_path(self._events(row))

    def _events(self, row: dict[str, Any]) -> list[Event]:
        trace = self.traces.get(play_of(row))
        return trace.of_turn(row["turn"]) if trace else []

    def _recalled(self, row: dict[str, Any]) -> int:
        """Tokens of the facts that memory brought into the turn, estimated."""
        recalls = [event for event in self._events(row) if isinstance(event, MemoryOp) and event.op == "recall"]
        return sum(len(fact.text) // CHARACTERS_PER_TOKEN for recall in recalls for fact in recall.facts)

    def _was_away(self, row: dict[str, Any]) -> bool:
        """Whether memory could not be reached in the turn, which then was answered without it."""
        return any(isinstance(event, Notice) and event.name == MEMORY_UNAVAILABLE for event in self._events(row))

    @property
    def answered_nothing(self) -> bool:
        """Whether every turn of every flow failed."""
        return all(flow["errors"] == flow["turns"] for flow in self.summary["flows"].values())

    def table(self) -> pd.DataFrame:
        """The comparison as numbers: one row a measure, one column a flow, None where it is not known."""
        import pandas as pd

        columns: dict[str, dict[str, Any]] = {}
        for label, flow in self.summary["flows"].items():
            column: dict[str, Any] = {
                "turns": flow["turns"],
                "errors": flow["errors"],
                "LLM calls / turn": flow["llm_calls_per_turn"],
                "embedding calls / turn": flow["embedding_calls_per_turn"],
                "tool calls / turn": flow["tool_calls_per_turn"],
                "memory operations / turn": _each(flow, "memory_ops"),
                "memory tokens / turn": flow.get("memory_tokens_per_turn"),
                "fallback rate": flow["fallback_rate"],
                "input tokens / turn": _each(flow, "input_tokens"),
                "output tokens / turn": _each(flow, "output_tokens"),
                "cost USD": flow["cost_usd"],
                "latency mean s": flow["latency_s"]["mean"],
                "latency p95 s": flow["latency_s"]["p95"],
            }
            for metric, score in flow["scores"].items():
                column[metric] = score["mean"]
            columns[label] = column
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.path}>"

    def _repr_html_(self) -> str:
        frame: Any = self.table()
        return str(frame.to_html(float_format=lambda value: f"{value:.3g}", na_rep="-"))


def _each(flow: dict[str, Any], key: str) -> float | None:
    return None if flow[key] is None else flow[key] / flow["turns"]


def open_run(path: str | Path) -> Run:
    """Open a run folder; raises RunError where it is none."""
    return Run(RunFolder.open(Path(path)))


async def finish(bench: Workbench, folder: RunFolder, datasets: Sequence[Dataset], *, complete: bool) -> Run:
    """Check conservation, grade every turn, and write `scores.jsonl` and `summary.json`."""
    run = Run(folder)
    rows = folder.turns()
    answered = {(*play_of(row), row["turn"]) for row in rows}
    for play, trace in run.traces.items():
        # A turn that a kill cut short may have lost the steps that were open; what it cost still counts.
        whole = [event for event in trace.events if complete or (*play, event.turn) in answered]
        check_conservation(whole, "/".join(map(str, play)))
    for row in rows:
        trace = run.traces.get(play_of(row), Trace(*play_of(row)))
        if not trace.totals(row["turn"]).agrees_with(Totals(**row["totals"])):
            raise RunError(f"{folder.path}: turn {row['turn']} of {row['conversation']} does not add up to its calls")
    scores = await _grade(bench, run, rows, datasets)
    folder.write_scores(scores)
    folder.write_json("summary.json", summarise(run, rows, scores, datasets, complete=complete))
    return run


async def _grade(
    bench: Workbench, run: Run, rows: list[dict[str, Any]], datasets: Sequence[Dataset]
) -> list[dict[str, Any]]:
    loop = asyncio.get_running_loop()

    def embed(texts: Sequence[str]) -> np.ndarray:
        return asyncio.run_coroutine_threadsafe(bench.embedder.embed(list(texts)), loop).result()

    expected = {
        (dataset.name, name_of(dataset, conversation, datasets)): (
            conversation,
            ingest_name(dataset.name, conversation) if isinstance(conversation, Question) else None,
        )
        for dataset in datasets
        for conversation in dataset.conversations
    }

    def grade_all() -> list[dict[str, Any]]:
        graded = []
        for row in rows:
            if given_up.is_set():
                break
            conversation, memory_of = expected[row["dataset"], row["conversation"]]
            for metric, score in _grade_turn(bench.scorers, conversation, memory_of, row, run, embed).items():
                where = {key: row.get(key) for key in ("flow", "dataset", "conversation", "category", "turn", "epoch")}
                graded.append({**where, "metric": metric, "value": score.value, "reason": score.reason})
        return graded

    # A thread cannot be cancelled, only asked.
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(grade_all)
    finally:
        given_up.set()


def _grade_turn(
    scorers: list[Any],
    conversation: Conversation,
    memory_of: str | None,
    row: dict[str, Any],
    run: Run,
    embed: Callable[[Sequence[str]], np.ndarray],
) -> dict[str, Score]:
    number = row["turn"]
    turn = conversation.turns[number]
    trace = run.traces.get(play_of(row))
    filled = run.traces.get((row["flow"], memory_of, row["epoch"])) if memory_of else None
    before = [*(filled.events if filled else ()), *(e for e in (trace.events if trace else ()) if e.turn < number)]
    scores: dict[str, Score] = {}
    for scorer in scorers:
        metrics = scorer.metrics(turn)
        if not metrics:
            continue
        if row["error"] is not None:
            scores |= {metric: Score(value=0.0, reason=f"the turn failed: {row['error'][:200]}") for metric in metrics}
            continue
        outcome = Outcome(
            reply=from_json(Reply, row["reply"]),
            events=trace.of_turn(number) if trace else [],
            embed=embed,
            events_before=before,
            turns_before=conversation.turns[:number],
            tools=conversation.tools,
        )
        try:
            scores |= scorer.score(turn, outcome)
        except NotRecorded as miss:
            scores |= {metric: Score(value=0.0, reason=f"{UNGRADED}: {miss}") for metric in metrics}
        except Exception as failure:
            where = f"turn {number} of {row['conversation']} by {row['flow']}"
            raise RunError(
                f"{run.path}: grading {where} for {', '.join(metrics)} failed: {type(failure).__name__}: {failure}."
                " The replies are kept: once the scorer is mended, --resume grades them"
            ) from failure
    return scores


def summarise(
    run: Run,
    rows: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    datasets: Sequence[Dataset],
    *,
    complete: bool,
) -> dict[str, Any]:
    """The content of `summary.json`."""
    header = run.folder.header
    by_flow: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_flow[row["flow"]].append(row)
    ungraded = sum(score["reason"].startswith(UNGRADED) for score in scores)
    reused = reuse(run.traces.values(), run.folder.abandoned(), header["spec"]["mode"], ungraded)
    missing = reused is not None and reused["missing"] > 0
    return {
        "run_id": header["run_id"],
        "status": "complete" if complete and not missing else "partial",
        "datasets": [dataset.name for dataset in datasets],
        "conversations": sum(len(dataset.conversations) for dataset in datasets),
        "turns": len(rows),
        "model": header["models"].get(header["spec"]["model"], header["spec"]["model"]),
        "mode": header["spec"]["mode"],
        "recordings": reused,
        "flows": {
            label: _summarise_flow(run, by_flow[label], [s for s in scores if s["flow"] == label])
            for label in (flow["label"] or flow["flow"] for flow in header["spec"]["flows"])
            if label in by_flow
        },
    }


def _summarise_flow(run: Run, rows: list[dict[str, Any]], scores: list[dict[str, Any]]) -> dict[str, Any]:
    traces = [trace for trace in run.traces.values() if trace.flow == rows[0]["flow"]]
    totals = Totals.sum(trace.totals() for trace in traces)
    lost = run.folder.abandoned(rows[0]["flow"])
    paid = billed([*lost, *(event for trace in traces for event in trace.events)])
    parts: dict[str, list[Totals]] = defaultdict(list)
    fallbacks = set()
    for trace in traces:
        for phase, part in trace.phases().items():
            parts[phase].append(part)
        for event in trace.events:
            if event.phase == "fallback":
                fallbacks.add((trace.conversation, trace.epoch, event.turn))
    phases = {phase: Totals.sum(parts[phase]) for phase in PHASES if phase in parts}
    latencies = [run._latency(row) for row in rows]
    n = len(rows)
    filled = [trace for trace in traces if trace.conversation.startswith(INGEST)]
    metrics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for score in scores:
        metrics[score["metric"]].append(score)
    return {
        "turns": n,
        "errors": sum(row["error"] is not None for row in rows),
        "llm_calls": totals.llm_calls,
        "embedding_calls": totals.embedding_calls,
        "tool_calls": totals.tool_calls,
        "memory_ops": totals.memory_ops,
        "llm_calls_per_turn": totals.llm_calls / n,
        "embedding_calls_per_turn": totals.embedding_calls / n,
        "tool_calls_per_turn": totals.tool_calls / n,
        "memory_tokens_per_turn": sum(run._recalled(row) for row in rows) / n,
        "memory_unavailable": sum(run._was_away(row) for row in rows),
        "fallback_rate": len(fallbacks) / n,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cached_tokens": totals.cached_tokens,
        "cost_usd": totals.cost_usd,
        "billed": {
            "llm_calls": paid.llm_calls,
            "input_tokens": paid.input_tokens,
            "output_tokens": paid.output_tokens,
            "cost_usd": paid.cost_usd,
        },
        "latency_s": {
            "mean": float(np.mean(latencies)),
            "p50": float(np.quantile(latencies, 0.5)),
            "p95": float(np.quantile(latencies, 0.95)),
        },
        "phases": {
            phase: {
                "calls": part.llm_calls + part.embedding_calls + part.tool_calls + part.memory_ops,
                "input_tokens": part.input_tokens,
                "output_tokens": part.output_tokens,
                "seconds": part.seconds,
            }
            for phase, part in phases.items()
        },
        "scores": {metric: _summarise_metric(graded) for metric, graded in metrics.items()},
    } | ({"ingest": _summarise_ingest(filled)} if filled else {})


def _summarise_ingest(traces: list[Trace]) -> dict[str, Any]:
    """What of the flow's totals went into filling its memories, in a run with `ingest: flow`."""
    notices = [event for trace in traces for event in trace.events if isinstance(event, Notice)]
    return {
        "turns": sum(len(trace.turns()) for trace in traces),
        "errors": sum(notice.name == INGEST_FAILED for notice in notices),
        "memory_unavailable": sum(
            len({e.turn for e in trace.events if isinstance(e, Notice) and e.name == MEMORY_UNAVAILABLE})
            for trace in traces
        ),
        **Totals.sum(trace.totals() for trace in traces).__dict__,
    }


def _summarise_metric(graded: list[dict[str, Any]]) -> dict[str, Any]:
    mean, interval = mean_with_interval([s["value"] for s in graded], [s["conversation"] for s in graded])
    return {"mean": mean, "ci95": list(interval) if interval else None, "n": len(graded)}
