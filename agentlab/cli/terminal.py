"""What the command line shows: progress with an ETA, tables of runs, pairs and verdicts, download bars, lists."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agentlab.core.errors import RunError
from agentlab.core.events import Event, Notice, shorten
from agentlab.core.trace import Trace
from agentlab.evals.compare.gate import Verdict
from agentlab.evals.compare.measures import brief, summary_rows
from agentlab.evals.compare.pairs import Comparison, Pair, PairedDifference, compare
from agentlab.evals.compare.report import CAPTION, COLUMNS, by_flow, cells
from agentlab.evals.results.run import Run
from agentlab.evals.run.folder import RunFolder
from agentlab.evals.run.runner import RunProgress
from agentlab.models import weights

SECONDS_BETWEEN_LINES = 10.0
"""Of progress in a log; on a terminal the bar moves all the time."""


FLIPS_SHOWN = 10
ERRORS_SHOWN = 3


class _Display:
    """A progress bar on stderr, so that tables on stdout can be piped."""

    def __init__(self, *columns: Any) -> None:
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._tasks:
            self._progress.stop()


class RunDisplay(_Display):
    def __init__(self) -> None:
        label = TextColumn("{task.description}", markup=False)
        super().__init__(TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), label)
        self._said = float("-inf")

    def update(self, progress: RunProgress) -> None:
        if "run" not in self._tasks:
            self._progress.start()
            self._tasks["run"] = self._progress.add_task("", total=progress.total)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        self._progress.update(self._tasks["run"], completed=progress.done, description=progress.label + failed)
        # Without a terminal rich draws only once; a log of a CI job still wants to see that something moves.
        now = time.monotonic()
        waited = now - self._said >= SECONDS_BETWEEN_LINES or progress.done == progress.total
        if not self._progress.console.is_terminal and (progress.done or progress.label) and waited:
            self._said = now
            left = progress.seconds_left
            eta = "" if left is None else f", about {left / 60:.0f} min left"
            line = f"turn {progress.done} of {progress.total}{eta}{failed}" if progress.done else progress.label
            self._progress.console.print(line, highlight=False)

    def tell(self, trace: Trace, event: Event) -> None:
        """Print an event that a flow wrote for whoever listens."""
        if isinstance(event, Notice):
            title = event.data.get("title", "")
            line = f"{trace.conversation} turn {event.turn}  {event.name}  {title}  {shorten(event.text)}"
            self._progress.console.print(line, highlight=False, markup=False)


class DownloadDisplay(_Display):
    def __init__(self) -> None:
        super().__init__(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())

    def update(self, file: str, done: int, total: int) -> None:
        if file not in self._tasks:
            self._progress.start()
            self._tasks[file] = self._progress.add_task(file, total=total)
        self._progress.update(self._tasks[file], completed=done)


def show_comparison(run: Run) -> None:
    """The table of a run: one row a measure, one column a flow, intervals at 95 %."""
    console = _console()
    result = run.result
    flows = list(result.flows.values())
    table = _table(f"{', '.join(result.datasets)} on {result.model}", ["", *result.flows])
    for section in summary_rows(flows):
        for title, values in section:
            table.add_row(escape(title), *values)
        table.add_section()
    console.print(table)
    for line in visible_differences(run):
        console.print(line, highlight=False, markup=False)
    console.print(f"run folder: {run.path}", highlight=False, markup=False, soft_wrap=True)
    away = sum(flow.memory_unavailable for flow in flows)
    if away and run.folder.header["spec"]["mode"] in ("record", "auto"):
        console.print(
            f"{away} turns were recorded without their memory, which a replay will have: --mode auto, once memory is"
            " back, asks for what then differs.",
            highlight=False,
        )
    failed = Counter(row.error for row in run.played() if row.error is not None)
    if failed:
        count = failed.total()
        console.print(f"{count} of {result.turns} turns failed and score 0; {run.path / 'run.log'} has more:")
        for error, count in failed.most_common(ERRORS_SHOWN):
            console.print(f"  {count} x {error[:300]}", highlight=False, markup=False)
    if result.status != "complete" and not (result.recordings and result.recordings.missing):
        console.print("The run stopped early: the budget is spent. Go on with --resume and a larger one.")


def show_pairs(comparison: Comparison) -> None:
    """A table a pair: one row a measure; then the turns whose answers crossed .5."""
    console = _console()
    for pair in comparison.pairs:
        columns = ["", "n", "A", "B", "B - A", "95 %", "p", "p (Holm)", "d_z", "visible", ""]
        table = _table(f"A: {pair.a}   B: {pair.b}", columns)
        for d in pair.differences:
            show = d.measure.show
            interval = f"[{brief(d.ci95[0])}, {brief(d.ci95[1])}]" if d.ci95 else "-"
            p, p_holm = ("-" if value is None else f"{value:.2g}" for value in (d.p, d.p_holm))
            d_z = "-" if d.d_z is None else f"{d.d_z:.2f}"
            means = (show(d.a), show(d.b), brief(d.difference, "+"))
            table.add_row(
                escape(d.measure.title), str(d.n), *means, interval, p, p_holm, d_z, brief(d.visible), d.reading
            )
        console.print(table)
        for word, flips in (("gained", pair.gained), ("lost", pair.lost)):
            for flip in flips[:FLIPS_SHOWN]:
                line = f"{word}: {flip.metric} {flip.a:.2f} -> {flip.b:.2f}, {flip.conversation} turn {flip.turn}"
                console.print(line + (f" epoch {flip.epoch}" if flip.epoch else ""), highlight=False, markup=False)
            if len(flips) > FLIPS_SHOWN:
                console.print(f"... and {len(flips) - FLIPS_SHOWN} more {word} (--json has all)", highlight=False)
        if pair.too_small:
            console.print(
                f"Nothing can be shown here, however large: with so few conversations p is {pair.floor:.2g} at the"
                f" least, and Holm multiplies by {pair.family}.",
                highlight=False,
            )
    console.print(
        "95 %: bootstrap over conversations; p: signs of whole conversations flipped, two-sided; Holm over the measures"
        " of a pair that differ; visible: the difference found in 80 % of such comparisons",
        highlight=False,
    )


def show_prefixes(shares: Sequence[Mapping[str, Any]], breaks: Sequence[Mapping[str, Any]]) -> None:
    """What a prefix cache could serve and did, a flow; then where prompts leave what was sent before."""
    console = _console()
    measures = [name for name in shares[0] if name != "flow"] if shares else []
    by_flow = [{"": name, **{row["flow"]: row[name] for row in shares}} for name in measures]
    for title, rows in (
        ("prompt tokens that repeat the beginning of an earlier prompt", by_flow),
        ("where prompts leave what was sent before", breaks),
    ):
        if rows:
            table = _table(title, rows[0])
            for row in rows:
                table.add_row(*(escape(_cell_text(cell)) for cell in row.values()))
            console.print(table)


def _cell_text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def show_verdict(verdict: Verdict) -> None:
    """A table a flow: one row a measure; then why a measure did not pass."""
    console = _console()
    for flow, judged in by_flow(verdict).items():
        table = _table(flow, COLUMNS)
        for j in judged:
            style = {"regression": "red", "inconclusive": "yellow"}.get(j.verdict)
            table.add_row(*(escape(cell) for cell in cells(j)), style=style)
        console.print(table)
        for j in judged:
            if j.verdict != "pass":
                console.print(f"{j.verdict}: {flow} {j.measure.name}: {j.why}", highlight=False, markup=False)
    for line in (*verdict.notes, CAPTION, str(verdict)):
        console.print(line, highlight=False, markup=False)


def _console() -> Console:
    # Cut to 80 columns a table would be unreadable in a log, where nobody asked for 80.
    return Console(width=None if Console().is_terminal else 140)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(escape(column), justify="right" if place else "left")
    return table


HEADLINES = ("answer_f1", "tool_f1", "memory_recall", "lookup_accuracy")
"""The measure each kind of data set is about; between 0 and 1."""


def visible_differences(run: Run) -> list[str]:
    """For each pair with the first flow: the smallest difference that `compare` could have shown with so few turns."""
    try:
        pairs = compare(run).pairs
    except RunError:  # a single flow, or turns that are not there yet
        return []
    lines = [
        f"smallest visible difference in {metric}, {pair.b} against {pair.a}: {_visible(pair, difference)}"
        for metric in HEADLINES
        for pair in pairs
        for difference in pair.differences
        if difference.measure.name == metric and difference.visible is not None
    ]
    measured = {difference.measure.name for pair in pairs for difference in pair.differences}
    equal = ", ".join(metric for metric in HEADLINES if metric in measured)
    if lines or not equal:
        return lines
    return [f"smallest visible difference in {equal}: unknown, as it does not differ or there is one conversation only"]


def _visible(pair: Pair, difference: PairedDifference) -> str:
    if pair.too_small or difference.visible is None or difference.visible > 1:
        return f"none, {difference.clusters} conversations are too few"
    return f"{difference.visible:.2f} (80 % power, Holm over {pair.family} measures)"


def list_weights(kind: Any) -> None:
    for name in weights.names(kind):
        state = "here" if weights.is_present(name) else f"agentlab pull {name}"
        entry = weights.CATALOGUE[name]
        megabytes = sum(file.bytes for file in entry.files) / 1e6
        print(f"local/{name:32} {megabytes:6.0f} MB  {entry.licence}  ({state})")


def list_runs() -> None:
    for file in sorted(Path("results").glob("*/run.json")):
        header = RunFolder.open(file.parent).header
        state = "complete" if (file.parent / "summary.json").exists() else "not finished"
        print(f"{file.parent}  {header['started']}  {header['spec']['model']}  {state}")
