"""A run as people look at it: data frames, conversations side by side, why turns went wrong, pictures and the page.

run = open_run("results/first")
run.turns, run.calls, run.scores        # pandas data frames
run.trace("tools", "laws-001")          # one conversation, event by event
run.show("laws-001")                    # the same conversation as every flow answered it
run.causes()                            # why turns went wrong, by stated rules
run.report().save("run.html")           # all of it as a page for the browser
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.core.escaping import one_line
from agentlab.core.events import ModelCall
from agentlab.evals.compare import pairs
from agentlab.evals.compare.causes import causes
from agentlab.evals.compare.epochs import passing
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.report.show import ConversationView
from agentlab.evals.store.rows import columns
from agentlab.evals.store.run import StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.evals.report.drawing import Picture
    from agentlab.evals.report.page import Page
    from agentlab.evals.report.views import Matrix, TurnFilter, Views
    from agentlab.evals.store.frames import Frame

EVENT_COLUMNS = (
    *("turn", "id", "kind", "phase", "title", "detail"),
    *("seconds", "waited", "attempt", "origin", "error"),
)
SCORED = ("flow", "dataset", "conversation", "category", "turn", "epoch")
USAGE_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens")
CAUSE_COLUMNS = ("flow", "conversation", "turn", "epoch", "cause", "event", "why")


class Run(StoredRun):
    """What is in a run folder, and how it looks."""

    @classmethod
    def of(cls, run: StoredRun) -> Run:
        return cls(run.folder, run.played_with)

    @cached_property
    def turns(self) -> Frame:
        """One row a turn: what was said, what it cost, latency in seconds."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        apart = ("reply", "totals", "phases", "scores", "published")
        for row in self.turn_rows():
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

        rows = []
        for row in self.rows():
            said = columns(row)
            turn = {name: said[name] for name in SCORED if name in said}
            rows += [{**turn, "metric": metric, **columns(score)} for metric, score in (row.scores or {}).items()]
        return frame_of(rows)

    def table(self) -> pd.DataFrame:
        """The comparison as numbers: one row a measure, one column a flow; it shows itself with n and intervals."""
        from agentlab.evals.store.frames import run_table

        return run_table(self.result.flows)

    def causes(self) -> Frame:
        """Why turns failed or were answered poorly: one row a turn, with the event that shows it."""
        from agentlab.evals.store.frames import frame_of

        return frame_of(
            [{name: getattr(each, name) for name in CAUSE_COLUMNS} for each in causes(self)], [*CAUSE_COLUMNS]
        )

    def passing(self, metric: str, k: int | None = None) -> pd.DataFrame:
        """Of each flow pass@k (right in one of k epochs) and pass^k (in all of k), with intervals at 95 %.

        Raises RunError where the run has fewer epochs, or no turn has the metric.
        """
        return passing(self, metric, k)

    def show(self, conversation: str) -> ConversationView:
        """Question, reference and every flow's whole reply with its scores, side by side; it prints itself.

        Raises RunError where the run has no such conversation.
        """
        played = self.rows(lambda row: row.conversation == conversation)
        if not played:
            known = {row.conversation for row in self.rows()}
            raise RunError(plugins.unknown_name("conversation of this run", conversation, known))
        order = {flow["label"] or flow["flow"]: number for number, flow in enumerate(self.header["spec"]["flows"])}
        why = {(each.flow, each.turn, each.epoch): each for each in causes(self, conversation)}
        played.sort(key=lambda row: order.get(row.flow, len(order)))
        return ConversationView(conversation, played, self.conversations.get(conversation), why)

    def report(self, other: Run | None = None) -> Page:
        """The page of this run, beside another one if it is given: `.save("run.html")`, or look at it in a notebook.

        Raises RunError where the run has not ended.
        """
        from agentlab.evals.report.page import report

        return report(self, other)

    @cached_property
    def _views(self) -> Views:
        from agentlab.evals.report.views import Views

        return Views(self)

    def pareto(self, x: str = "", y: str = "") -> Picture:
        """A picture of cost against quality: flows by their means of two measures, with intervals at 95 %.

        Raises ConfigError for a measure that the run does not have.
        """
        return self._views.pareto(x, y)

    def forest(self) -> Picture | None:
        """A picture of the paired differences in what decides; None where there is nothing to compare."""
        return self._views.forest()

    def matrix(self, only: TurnFilter = "all", by: str = "", limit: int = 20) -> Matrix:
        """Turns as rows and flows as columns, worst first by the measure `by`: all, failed, flipped or disagree."""
        return self._views.matrix(only, by, limit)

    def __repr__(self) -> str:
        return one_line(f"<Run {self.run_id}: {self.path}>")

    def _ipython_display_(self) -> None:
        """In a notebook: verdict, table and pictures; of a run that has not ended, its name."""
        if self.folder.summary_file.exists():
            self._views.display()
        else:
            print(repr(self))  # noqa: T201 - what a cell shows


def open_run(path: str | Path, *, regrade: bool = False) -> Run:
    """Open a run folder; raises RunError where it is none, or where a file of it was edited after the run had ended.

    With `regrade`, for those who make it anew, the summary may have been.
    """
    return Run.open(path, regrade=regrade)


def import_predictions(predictions: str | Path, out: str | Path, **options: Any) -> Run:
    """A run of answers of other systems; options are those of `agentlab.evals.published.importing`."""
    from agentlab.evals.published import importing

    return Run.of(importing.import_predictions(predictions, out, **options))


class ShownComparison(Comparison):
    """A comparison that shows itself in a notebook."""

    def _repr_markdown_(self) -> str:
        from agentlab.evals.report.views import comparison_markdown

        return comparison_markdown(self)


def compare(a: StoredRun, b: StoredRun | None = None, flows: Sequence[str] = ()) -> ShownComparison:
    """Compare flows of one run, or of two, as `agentlab.evals.compare.pairs` says."""
    return ShownComparison(**vars(pairs.compare(a, b, flows)))
