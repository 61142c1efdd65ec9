"""A finished run: its summary, its rows and traces, and data frames of them; all of it is folded from the run folder.

run = open_run("results/first")
run.turns, run.calls, run.scores        # pandas data frames
run.trace("tools", "laws-001")          # one conversation, event by event
run.show("laws-001")                    # the same conversation as every flow answered it
run.causes()                            # why turns went wrong, by stated rules
run.report().save("run.html")           # all of it as a page for the browser
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import UNSET

from agentlab.core import plugins
from agentlab.core.errors import DatasetError, RunError
from agentlab.core.events import ModelCall
from agentlab.core.messages import from_json
from agentlab.core.names import IMPORTED
from agentlab.core.shown import one_line
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset, load_dataset, name_of
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.memory_view import MemoryView
from agentlab.evals.store.rows import FlowSummary, Play, Summary, TurnFigures, TurnRow, columns

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.evals.report.show import Shown
    from agentlab.evals.store.frames import Frame

EVENT_COLUMNS = (
    *("turn", "id", "kind", "phase", "title", "detail"),
    *("seconds", "waited", "attempt", "origin", "error"),
)
USAGE_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens")
_Made = TypeVar("_Made")


class Page(Protocol):
    """An HTML document that shows itself in a notebook."""

    text: str

    def save(self, path: str | Path) -> Path: ...


class Run:
    """What is in a run folder; nothing is kept that the rows do not say."""

    def __init__(self, folder: RunFolder, datasets: Sequence[Dataset] | None = None) -> None:
        """`datasets` are those it was just played with, where they are at hand."""
        self._datasets = datasets
        self.folder = folder
        self.path = folder.path
        self.is_sealed = True
        """False for a run that has not ended, or that is older than seals."""

    @property
    def run_id(self) -> str:
        return str(self.folder.header["run_id"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The stable machine interface, as in `summary.json`."""
        missing = ": the run has not ended; continue it with --resume"
        summary: dict[str, Any] = self.folder.read_json("summary.json", missing)
        if not isinstance(summary, dict):
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run")
        return {name: value for name, value in summary.items() if name != "seal"}

    @cached_property
    def result(self) -> Summary:
        """The summary with a type."""
        try:
            return from_json(Summary, self.summary)
        except ValueError as problem:
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run: {problem}") from None

    @property
    def traces(self) -> Mapping[Play, Trace]:
        """Every conversation's events; each trace is read when it is asked for."""
        return self.folder.ledger

    def trace(self, flow: str, conversation: str, epoch: int = 0) -> Trace:
        try:
            return self.traces[flow, conversation, epoch]
        except KeyError:
            known = sorted({f"{play[0]} {play[1]}" for play in self.traces})
            raise RunError(self._unknown(f"{flow} {conversation}", known)) from None

    def _unknown(self, conversation: str, known: Collection[str]) -> str:
        if self.folder.header["spec"].get("mode") == IMPORTED:
            return (
                f"{self.path} was imported: nobody knows the steps behind its answers; `agentlab show` has the answers"
            )
        return plugins.unknown("conversation of this run", conversation, known)

    @cached_property
    def conversations(self) -> dict[str, Conversation]:
        """What was asked and what is expected, by name; without data sets that are not here or have changed since."""
        paths = self.folder.header["spec"]["datasets"]
        return {name_of(dataset, each, paths): each for dataset in self.datasets for each in dataset.conversations}

    @cached_property
    def datasets(self) -> list[Dataset]:
        """Those of the run, without any that is not here or has changed since."""
        spec, known = self.folder.header["spec"], self.folder.header["datasets"]
        found = []
        for place, path in enumerate(spec["datasets"]):
            with contextlib.suppress(DatasetError, OSError):
                played = self._datasets[place] if self._datasets else None
                dataset = played or load_dataset(path).take(spec["limit"], spec.get("sample"))
                if dataset.digest == known.get(dataset.name, {}).get("sha256"):
                    found.append(dataset)
        return found

    def asked(self, conversation: str, turn: int) -> Turn | None:
        """What the data set asks and expects there; None where it is not here or has no such turn."""
        found = self.conversations.get(conversation)
        return found.turns[turn] if found and 0 <= turn < len(found.turns) else None

    def show(self, conversation: str) -> Shown:
        """Question, reference and every flow's whole reply with its scores, side by side; it prints itself.

        Raises RunError where the run has no such conversation.
        """
        from agentlab.evals.report.show import Shown

        played = self.folder.turns(conversation=conversation)
        if not played:
            known = {play[1] for (play, _), _ in self.folder.latest(TurnFigures, lambda row: None)}
            raise RunError(plugins.unknown("conversation of this run", conversation, known))
        flows = self.folder.header["spec"]["flows"]
        order = {flow["label"] or flow["flow"]: number for number, flow in enumerate(flows)}
        why = {(each.flow, each.turn, each.epoch): each.cause for each in _causes(self, conversation)}
        played.sort(key=lambda row: order.get(row.flow, len(order)))
        return Shown(conversation, played, self.conversations.get(conversation), why)

    def causes(self) -> Frame:
        """Why turns failed or were answered poorly: one row a turn, with the event that shows it."""
        from agentlab.evals.store.frames import frame_of

        names = ("flow", "conversation", "turn", "epoch", "cause", "event", "why")
        return frame_of([{name: getattr(each, name) for name in names} for each in _causes(self)], list(names))

    def memory(self, conversation: str, flow: str | None = None, epoch: int = 0) -> MemoryView:
        """What was remembered in a conversation; `flow` is needed where several remember something.

        Raises RunError where there is no such conversation.
        """
        played = [play for play in self.traces if play[1:] == (conversation, epoch)]
        views = {play[0]: MemoryView(f"{conversation} in {play[0]}", self.traces[play].events) for play in played}
        remembering = [label for label, view in views.items() if view.operations]
        if flow is None and len(remembering) == 1:
            flow = remembering[0]
        if not played:
            raise RunError(self._unknown(conversation, {play[1] for play in self.traces}))
        if flow is None:
            named = f"name one of {', '.join(remembering)} (--flow)" if remembering else "no flow remembered anything"
            raise RunError(f"{conversation}: {named}")
        if flow not in views:
            raise RunError(plugins.unknown(f"flow that played {conversation}", flow, views))
        return views[flow]

    def report(self, other: Run | None = None) -> Page:
        """The page of this run, beside another one if it is given: `.save("run.html")`, or look at it in a notebook.

        Raises RunError where the run has not ended.
        """
        # By name: the page stands on comparisons, and they stand on runs.
        page: Page = import_module("agentlab.evals.report.page").report(self, other)
        return page

    @cached_property
    def _views(self) -> Any:
        # By name, as the page: they stand on comparisons.
        return import_module("agentlab.evals.report.views").Views(self)

    def pareto(self, x: str = "", y: str = "") -> Any:
        """A picture of cost against quality: flows by their means of two measures, with intervals at 95 %.

        Raises ConfigError for a measure that the run does not have.
        """
        return self._views.pareto(x, y)

    def forest(self) -> Any:
        """A picture of the paired differences in what decides; None where there is nothing to compare."""
        return self._views.forest()

    def matrix(self, only: str = "all", by: str = "", limit: int = 20) -> Any:
        """Turns as rows and flows as columns, worst first by the measure `by`: all, failed, flipped or disagree."""
        return self._views.matrix(only, by, limit)

    def passing(self, metric: str, k: int | None = None) -> pd.DataFrame:
        """Of each flow pass@k (right in one of k epochs) and pass^k (in all of k), with intervals at 95 %.

        Raises RunError where the run has fewer epochs, or no turn has the metric.
        """
        found: pd.DataFrame = import_module("agentlab.evals.compare.epochs").passing(self, metric, k)
        return found

    def played(self) -> list[TurnRow]:
        """The turns with all that was said; raises RunError where the summary counts others."""
        rows = self.folder.turns()
        self._check_flows([row.flow for row in rows])
        return rows

    def figures(self, make: Callable[[TurnFigures], _Made]) -> list[tuple[tuple[Play, int], _Made]]:
        """What `make` makes of the figures of each turn, with its place; raises RunError where the summary counts
        other turns."""
        found = list(self.folder.latest(TurnFigures, make))
        self._check_flows([play[0] for (play, _), _ in found])
        return found

    def _check_flows(self, played: Sequence[str]) -> None:
        """`played`: the flow of each turn."""
        if len(played) != self.result.turns:
            raise RunError(f"{self.path}: turns.jsonl holds {len(played)} turns, the summary {self.result.turns}")
        if unknown := {*played} - {*self.result.flows}:
            names = one_line(", ".join(sorted(unknown)))
            raise RunError(f"{self.path}: turns.jsonl holds turns of {names!r}, which the summary does not know")

    @cached_property
    def turns(self) -> Frame:
        """One row a turn: what was said, what it cost, latency in seconds."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        apart = ("reply", "totals", "phases", "scores", "published")
        for row in self.played():
            said = {name: value for name, value in columns(row).items() if name not in apart}
            rows.append({**said, "reply": row.reply.text if row.reply else "", **row.costs()})
        return frame_of(rows)

    @cached_property
    def calls(self) -> Frame:
        """One row an event of the ledger."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        for (flow, conversation, epoch), trace in self.traces.items():
            for event in trace.events:
                row: dict[str, Any] = {"flow": flow, "conversation": conversation, "epoch": epoch}
                row |= {name: getattr(event, name) for name in EVENT_COLUMNS}
                if isinstance(event, ModelCall) and event.completion is not None:
                    row |= {name: getattr(event.completion.usage, name) for name in USAGE_COLUMNS}
                    row["cost_usd"] = event.cost_usd
                rows.append(row)
        return frame_of(rows)

    @cached_property
    def scores(self) -> Frame:
        """One row a turn and metric, with the reason for the value."""
        from agentlab.evals.store.frames import frame_of

        return frame_of([columns(row) for row in self.folder.scores()])

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
        if self.result.quarantined:
            first = self.result.quarantined[0]
            raise RunError(
                f"{self.path}: {len(self.result.quarantined)} conversations are quarantined (the first: {first.flow}"
                f" {first.conversation}: {first.cause}); --resume plays them again"
            )
        if self.result.status != "complete":
            raise RunError(f"{self.path}: the run stopped early; go on with --resume first")

    def table(self) -> pd.DataFrame:
        """The comparison as numbers: one row a measure, one column a flow; it shows itself with n and intervals."""
        from agentlab.evals.store.frames import run_table

        flows = self.result.flows
        return run_table(flows, {label: _column(flow) for label, flow in flows.items()})

    def __repr__(self) -> str:
        return one_line(f"<Run {self.run_id}: {self.path}>")

    def _ipython_display_(self) -> None:
        """In a notebook: verdict, table and pictures; of a run that has not ended, its name."""
        if (self.path / "summary.json").exists():
            self._views.display()
        else:
            print(repr(self))  # noqa: T201 - what a cell shows


def _causes(run: Run, conversation: str | None = None) -> list[Any]:
    # By name: the rules read a run.
    found: list[Any] = import_module("agentlab.evals.compare.causes").causes(run, conversation)
    return found


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


def open_run(path: str | Path, *, regrade: bool = False) -> Run:
    """Open a run folder; raises RunError where it is none, or where a file of it was edited after the run had ended.

    With `regrade`, for those who make it anew, the summary may have been.
    """
    run = Run(RunFolder.open(Path(path)))
    run.is_sealed = run.folder.check_seal(regrade=regrade)
    return run
