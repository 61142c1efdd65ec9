"""A finished run: its summary, its rows and traces, and data frames of them; all of it is folded from the run folder.

run = open_run("results/first")
run.turns, run.calls, run.scores        # pandas data frames
run.trace("tools", "laws-001")          # one conversation, event by event
run.show("laws-001")                    # the same conversation as every flow answered it
run.report().save("run.html")           # all of it as a page for the browser
"""

from __future__ import annotations

import contextlib
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET

from agentlab.core import plugins
from agentlab.core.errors import DatasetError, RunError
from agentlab.core.events import MemoryOp, ModelCall, Notice
from agentlab.core.messages import CHARACTERS_PER_TOKEN, from_json
from agentlab.core.names import MEMORY_UNAVAILABLE
from agentlab.core.shown import one_line
from agentlab.core.trace import Trace, critical_path
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import load_dataset, name_of
from agentlab.evals.results.rows import FlowSummary, Play, Summary, TurnRow, columns
from agentlab.evals.run.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.evals.results.frames import Frame
    from agentlab.evals.results.show import Shown

EVENT_COLUMNS = (
    *("turn", "id", "kind", "phase", "title", "detail"),
    *("seconds", "waited", "attempt", "origin", "error"),
)
USAGE_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens")


class Page(Protocol):
    """An HTML document that shows itself in a notebook."""

    text: str

    def save(self, path: str | Path) -> Path: ...


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
        missing = ": the run has not ended; continue it with --resume"
        summary: dict[str, Any] = self.folder.read_json("summary.json", missing)
        return summary

    @cached_property
    def result(self) -> Summary:
        """The summary with a type."""
        try:
            return from_json(Summary, self.summary)
        except ValueError as problem:
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run: {problem}") from None

    @cached_property
    def traces(self) -> dict[Play, Trace]:
        return self.folder.played.traces

    def trace(self, flow: str, conversation: str, epoch: int = 0) -> Trace:
        try:
            return self.traces[flow, conversation, epoch]
        except KeyError:
            known = sorted({f"{play[0]} {play[1]}" for play in self.traces})
            raise RunError(plugins.unknown("conversation of this run", f"{flow} {conversation}", known)) from None

    @cached_property
    def conversations(self) -> dict[str, Conversation]:
        """What was asked and what is expected, by name; without data sets that are not here or have changed since."""
        spec, known = self.folder.header["spec"], self.folder.header["datasets"]
        found: dict[str, Conversation] = {}
        for path in spec["datasets"]:
            with contextlib.suppress(DatasetError):
                dataset = load_dataset(path).take(spec["limit"], spec.get("sample"))
                if dataset.digest == known.get(dataset.name, {}).get("sha256"):
                    found |= {name_of(dataset, each, spec["datasets"]): each for each in dataset.conversations}
        return found

    def show(self, conversation: str) -> Shown:
        """Question, reference and every flow's whole reply with its scores, side by side; it prints itself.

        Raises RunError where the run has no such conversation.
        """
        from agentlab.evals.results.show import Shown

        rows = self.folder.played.turns
        if conversation not in (known := {row.conversation for row in rows}):
            raise RunError(plugins.unknown("conversation of this run", conversation, known))
        order = [flow["label"] or flow["flow"] for flow in self.folder.header["spec"]["flows"]]
        played = [(row, self.costs(row)) for row in rows if row.conversation == conversation]
        played.sort(key=lambda turn: order.index(turn[0].flow))
        return Shown(conversation, played, self.folder.scores(), self.conversations.get(conversation))

    def report(self, other: Run | None = None) -> Page:
        """The page of this run, beside another one if it is given: `.save("run.html")`, or look at it in a notebook.

        Raises RunError where the run has not ended.
        """
        # By name: the page stands on comparisons, and they stand on runs.
        page: Page = import_module("agentlab.evals.report.page").report(self, other)
        return page

    def variance(self, metric: str) -> pd.DataFrame:
        """Of each flow where the error of a mean comes from: conversations, turns within them, epochs of each.

        Raises RunError where no turn has the metric.
        """
        return self._of_epochs("variance", metric)

    def passing(self, metric: str, k: int | None = None) -> pd.DataFrame:
        """Of each flow pass@k (right in one of k epochs) and pass^k (in all of k), with intervals at 95 %.

        Raises RunError where the run has fewer epochs, or no turn has the metric.
        """
        return self._of_epochs("passing", metric, k)

    def _of_epochs(self, name: str, *arguments: Any) -> pd.DataFrame:
        found: pd.DataFrame = getattr(import_module("agentlab.evals.compare.epochs"), name)(self, *arguments)
        return found

    def played(self) -> list[TurnRow]:
        """The rows of `turns.jsonl`; raises RunError where the summary counts others."""
        rows = self.folder.played.turns
        if len(rows) != self.result.turns:
            raise RunError(f"{self.path}: turns.jsonl holds {len(rows)} turns, the summary {self.result.turns}")
        return rows

    def costs(self, row: TurnRow) -> dict[str, Any]:
        """What a turn took, by name, as `costs_of` says."""
        return costs_of(row, self.traces.get(row.play))

    @cached_property
    def turns(self) -> Frame:
        """One row a turn: what was said, what it cost, latency in seconds."""
        from agentlab.evals.results.frames import Frame

        rows = []
        for row in self.played():
            said = {name: value for name, value in columns(row).items() if name not in ("reply", "totals", "published")}
            rows.append({**said, "reply": row.reply.text if row.reply else "", **self.costs(row)})
        return Frame(rows)

    @cached_property
    def calls(self) -> Frame:
        """One row an event of the ledger."""
        from agentlab.evals.results.frames import Frame

        rows = []
        for (flow, conversation, epoch), trace in self.traces.items():
            for event in trace.events:
                row: dict[str, Any] = {"flow": flow, "conversation": conversation, "epoch": epoch}
                row |= {name: getattr(event, name) for name in EVENT_COLUMNS}
                if isinstance(event, ModelCall) and event.completion is not None:
                    row |= {name: getattr(event.completion.usage, name) for name in USAGE_COLUMNS}
                    row["cost_usd"] = event.cost_usd
                rows.append(row)
        return Frame(rows)

    @cached_property
    def scores(self) -> Frame:
        """One row a turn and metric, with the reason for the value."""
        from agentlab.evals.results.frames import Frame

        return Frame([columns(row) for row in self.folder.scores()])

    @property
    def answered_nothing(self) -> bool:
        """Whether every turn of every flow failed."""
        return all(flow.errors == flow.turns for flow in self.result.flows.values())

    def check_complete(self) -> None:
        """Raise RunError where turns of the run are missing, or failed for want of a recording."""
        reused = self.result.recordings
        if reused and reused.missing:
            raise RunError(
                f"{self.path}: {reused.missing} calls of this replay were not recorded; record them with --mode auto"
            )
        if self.result.status != "complete":
            raise RunError(f"{self.path}: the run stopped early; go on with --resume first")

    def table(self) -> Frame:
        """The comparison as numbers: one row a measure, one column a flow, None where it is not known."""
        from agentlab.evals.results.frames import Frame

        return Frame({label: _column(flow) for label, flow in self.result.flows.items()})

    def __repr__(self) -> str:
        return one_line(f"<Run {self.run_id}: {self.path}>")

    def _repr_html_(self) -> str:
        return str(self.table().to_html(float_format=lambda value: f"{value:.3g}", na_rep="-"))


def costs_of(row: TurnRow, trace: Trace | None) -> dict[str, Any]:
    """What a turn took, by name: its totals, latency in seconds, and tokens of recalled facts, estimated."""
    failed = int(row.error is not None)
    if row.latency_s is not UNSET:
        said = {"latency_s": row.latency_s, "memory_tokens": None, "memory_unavailable": None}
        return {**vars(row.totals), "failed": failed, **said, "retrieval_steps": row.retrieval_steps}
    events = trace.of_turn(row.turn) if trace else []
    recalled = [f for e in events if isinstance(e, MemoryOp) and e.op == "recall" for f in e.facts]
    away = any(isinstance(event, Notice) and event.name == MEMORY_UNAVAILABLE for event in events)
    return {
        **vars(row.totals),
        "failed": failed,
        "latency_s": critical_path(events),
        "memory_tokens": sum(len(fact.text) // CHARACTERS_PER_TOKEN for fact in recalled),
        "memory_unavailable": int(away),
    }


def _column(flow: FlowSummary) -> dict[str, float | None]:
    return {
        "turns": flow.turns,
        "errors": flow.errors,
        "LLM calls / turn": flow.llm_calls_per_turn,
        "embedding calls / turn": flow.embedding_calls_per_turn,
        "tool calls / turn": flow.tool_calls_per_turn,
        "memory operations / turn": flow.per_turn("memory_ops"),
        "memory tokens / turn": flow.memory_tokens_per_turn,
        "fallback rate": flow.fallback_rate,
        "input tokens / turn": flow.per_turn("input_tokens"),
        "output tokens / turn": flow.per_turn("output_tokens"),
        **({} if flow.retrieval_steps is UNSET else {"retrieval steps / turn": flow.per_turn("retrieval_steps")}),
        "cost USD": flow.cost_usd,
        "latency mean s": flow.latency_s["mean"],
        "latency p95 s": flow.latency_s["p95"],
        **{metric: score.mean for metric, score in flow.scores.items()},
    }


def open_run(path: str | Path) -> Run:
    """Open a run folder; raises RunError where it is none."""
    return Run(RunFolder.open(Path(path)))
