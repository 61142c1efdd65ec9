"""Views of a run: data frames, conversations side by side, causes of poor turns, pictures and the report page.

run = open_run("results/first")
run.turns, run.calls, run.scores        # pandas data frames
run.trace("tools", "laws-001")          # one conversation, event by event
run.show("laws-001")                    # the replies of every flow in one conversation
run.causes()                            # causes of poor turns, found by rules
run.report().save("run.html")           # the report page
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
TURN_COLUMNS = ("flow", "dataset", "conversation", "category", "turn", "epoch")
USAGE_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens")
CAUSE_COLUMNS = ("flow", "conversation", "turn", "epoch", "cause", "event", "why")


class Run(StoredRun):
    """A run folder: its data frames, comparisons, pictures and traces; `al.open_run` opens one.

    As the last line of a notebook cell it shows the headline, the table and two pictures.
    """

    @classmethod
    def of(cls, run: StoredRun) -> Run:
        return cls(run.folder, run.played_with)

    @cached_property
    def turns(self) -> Frame:
        """Data frame with a row for each turn: user text, reply, calls, tokens, dollars (`cost_usd`), `latency_s`."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        omitted = ("reply", "totals", "phases", "scores", "published")
        for row in self.turn_rows():
            values = {name: value for name, value in columns(row).items() if name not in omitted}
            values["turn"] += 1
            rows.append({**values, "reply": row.reply.text if row.reply else "", **row.costs()})
        return frame_of(rows)

    @cached_property
    def calls(self) -> Frame:
        """Data frame with a row for each event: phase, seconds, tokens, and dollars of model calls."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        for (flow, conversation, epoch), trace in self.traces.items():
            for event in trace.events:
                row: dict[str, Any] = {"flow": flow, "conversation": conversation, "epoch": epoch}
                row |= {name: getattr(event, name) for name in EVENT_COLUMNS} | {"turn": event.turn + 1}
                if isinstance(event, ModelCall) and event.completion is not None:
                    row |= {name: getattr(event.completion.usage, name) for name in USAGE_COLUMNS}
                    row["cost_usd"] = event.cost_usd
                rows.append(row)
        return frame_of(rows)

    @cached_property
    def scores(self) -> Frame:
        """Data frame with a row for each turn and metric: value from 0 to 1 and its reason."""
        from agentlab.evals.store.frames import frame_of

        rows = []
        for row in self.rows():
            values = columns(row)
            turn = {name: values[name] for name in TURN_COLUMNS if name in values} | {"turn": row.turn + 1}
            rows += [{**turn, "metric": metric, **columns(score)} for metric, score in (row.scores or {}).items()]
        return frame_of(rows)

    def table(self) -> pd.DataFrame:
        """Return means as a data frame: a row for each measure, a column for each flow; printed with 95 % intervals."""
        from agentlab.evals.store.frames import run_table

        return run_table(self.result.flows)

    def causes(self) -> Frame:
        """Return the cause of each failed or poor turn as a data frame, with the event that shows it."""
        from agentlab.evals.store.frames import frame_of

        return frame_of(
            [{name: getattr(each, name) for name in CAUSE_COLUMNS} | {"turn": each.turn + 1} for each in causes(self)],
            [*CAUSE_COLUMNS],
        )

    def passing(self, metric: str, k: int | None = None) -> pd.DataFrame:
        """Return pass@k and pass^k of each flow as a data frame, with 95 % intervals.

        pass@k is the share of turns right in one of `k` epochs, pass^k in all of them; a turn is right from .5 on.
        `k` is all epochs by default. Raises RunError if the run has fewer epochs, or no turn has the metric.
        """
        return passing(self, metric, k)

    def show(self, conversation: str) -> ConversationView:
        """Return a conversation with every flow's replies and scores side by side, as text or HTML.

        Raises RunError for an unknown conversation.
        """
        rows = self.rows(lambda row: row.conversation == conversation)
        if not rows:
            names = {row.conversation for row in self.rows()}
            raise RunError(plugins.unknown_name("conversation of this run", conversation, names))
        order = {flow["label"] or flow["flow"]: number for number, flow in enumerate(self.header["spec"]["flows"])}
        by_turn = {(each.flow, each.turn, each.epoch): each for each in causes(self, rows)}
        rows.sort(key=lambda row: order.get(row.flow, len(order)))
        return ConversationView(conversation, rows, self.conversations.get(conversation), by_turn)

    def report(self, other: Run | None = None) -> Page:
        """Return the report page, beside `other` if given; `.save("run.html")` writes it, a notebook shows it.

        Raises RunError for a run that has not ended.
        """
        from agentlab.evals.report.page import report

        return report(self, other)

    @cached_property
    def _views(self) -> Views:
        from agentlab.evals.report.views import Views

        return Views(self)

    def pareto(self, x: str = "", y: str = "") -> Picture:
        """Draw the flows by their means of two measures, with 95 % intervals (default: a cost and a quality).

        Raises ConfigError for a measure that the run does not have.
        """
        return self._views.pareto(x, y)

    def forest(self) -> Picture | None:
        """Draw the paired differences in the primary measures, with 95 % intervals; None for a run with one flow."""
        return self._views.forest()

    def matrix(self, only: TurnFilter = "all", by: str = "", limit: int = 20) -> Matrix:
        """Return turns as rows and flows as columns, worst first by the measure `by`; at most `limit` rows.

        `only` is `all`, `failed`, `flipped` (right in one flow, wrong in another) or `disagree`.
        """
        return self._views.matrix(only, by, limit)

    def __repr__(self) -> str:
        return one_line(f"<Run {self.run_id}: {self.path}>")

    def _ipython_display_(self) -> None:
        """Show headline, table and pictures in a notebook; only the name of a run that has not ended."""
        if self.folder.summary_file.exists():
            self._views.display()
        else:
            print(repr(self))  # noqa: T201 - what a cell shows


def open_run(path: str | Path, *, regrade: bool = False) -> Run:
    """Open a run folder.

    Raises RunError if the folder is no run, or if a file was edited after the run ended. `regrade=True` accepts an
    edited summary, for callers that write it again.
    """
    return Run.open(path, regrade=regrade)


def import_predictions(predictions: str | Path, out: str | Path, **options: Any) -> Run:
    """Grade answers of other systems and return them as a run in the folder `out`.

    `predictions` is a JSON lines or CSV file, or a folder of them. `dataset` is the data set folder (default: the
    folder of the predictions), `scorers` names graders, `primary` two to four primary measures.

    Raises DatasetError, with file and line, for a row that cannot be used, ConfigError for an unknown measure. An
    error leaves no run behind.
    """
    from agentlab.evals.published import importing

    return Run.of(importing.import_predictions(predictions, out, **options))


class Comparison(pairs.Comparison):
    """Result of `al.compare`: one entry of `pairs` for each two flows; a notebook shows it as a table."""

    @cached_property
    def table(self) -> Frame:
        """Data frame with a row for each pair and measure: means, B - A, 95 % interval, p-values and verdict."""
        from agentlab.evals.report.comparison import comparison_table

        return comparison_table(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as `agentlab compare --json` prints it."""
        from agentlab.evals.report.comparison import comparison_json

        return comparison_json(self)

    def _repr_markdown_(self) -> str:
        from agentlab.evals.report.comparison import comparison_markdown

        return comparison_markdown(self)


def compare(a: StoredRun, b: StoredRun | None = None, flows: Sequence[str] = ()) -> Comparison:
    """Compare flows turn by turn, on the same turns.

    `compare(run)` compares the first flow with each other one, `compare(run, flows=["a", "b"])` two of them.
    `compare(before, after)` compares each flow of two runs with itself, with `flows` one flow of each run.

    Each measure gets a mean difference over turns (B - A), a 95 % interval over conversations, and the p-value of a
    sign-flip test. The p-values are adjusted by maxT over all primary measures and pairs.

    Raises RunError if the runs have other data, graders or turns, or if one is incomplete or lacks a flow.
    """
    return Comparison(**vars(pairs.compare(a, b, flows)))
