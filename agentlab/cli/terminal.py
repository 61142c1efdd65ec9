"""What the command line shows: progress with an ETA, tables of runs, pairs and verdicts, download bars."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import rich.progress as bars
from rich.console import Console
from rich.table import Table

from agentlab.core.errors import RunError
from agentlab.core.events import Decision, shorten
from agentlab.core.stream import Done, Item, Noticed, StepEnded, ToolProgress, TurnBegun
from agentlab.core.trace import Trace
from agentlab.evals.compare.family import ASSUMED
from agentlab.evals.compare.flips import told, worst
from agentlab.evals.compare.gate import Verdict
from agentlab.evals.compare.measures import COSTS, brief, summary_rows
from agentlab.evals.compare.pairs import Comparison, Pair, compare
from agentlab.evals.compare.questions import Answer
from agentlab.evals.compare.report import FILES, lines
from agentlab.evals.compare.verdicts import WORSE
from agentlab.evals.results.run import Run
from agentlab.evals.run.runner import RunProgress

SECONDS_BETWEEN_LINES = 10.0
"""Of progress in a log; on a terminal the bar moves all the time."""
FLIPS_SHOWN = 10
FLIPS_OF_A_MEASURE = 2
ERRORS_SHOWN = 3


class _Display:
    """A progress bar on stderr, so that tables on stdout can be piped."""

    def __init__(self, *columns: Any) -> None:
        self._progress = bars.Progress(*columns, console=Console(stderr=True, highlight=False, markup=False))
        self._tasks: dict[str, bars.TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._tasks:
            self._progress.stop()

    def _task(self, name: str, total: int) -> bars.TaskID:
        if name not in self._tasks:
            self._progress.start()
            self._tasks[name] = self._progress.add_task(name, total=total)
        return self._tasks[name]


class RunDisplay(_Display):
    def __init__(self) -> None:
        label = bars.TextColumn("{task.description}", markup=False)
        turns, eta = bars.MofNCompleteColumn(), bars.TimeRemainingColumn()
        super().__init__(bars.TextColumn("turns"), bars.BarColumn(), turns, eta, label)
        self._said = float("-inf")

    def update(self, progress: RunProgress) -> None:
        task = self._task("run", progress.total)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        self._progress.update(task, completed=progress.done, description=progress.label + failed)
        # Without a terminal rich draws only once; a log of a CI job still wants to see that something moves.
        now = time.monotonic()
        waited = now - self._said >= SECONDS_BETWEEN_LINES or progress.done == progress.total
        if not self._progress.console.is_terminal and (progress.done or progress.label) and waited:
            self._said = now
            left = progress.seconds_left
            eta = "" if left is None else f", about {left / 60:.0f} min left"
            line = f"turn {progress.done} of {progress.total}{eta}{failed}" if progress.done else progress.label
            self._progress.console.print(line)

    def tell(self, trace: Trace, item: Item) -> None:
        """Print what happens in a turn, a line each; not its text, which comes in pieces."""
        if line := line_of(item):
            self._progress.console.print(f"{trace.conversation} turn {item.turn}  {line}")


def line_of(item: Item) -> str:
    """An item of the stream as a line; "" for those that need none."""
    match item:
        case TurnBegun(asked=asked):
            return f"asked: {shorten(asked.text)}"
        case StepEnded(event=event) if event.costed or isinstance(event, Decision):
            failed = f"  FAILED: {shorten(event.error)}" if event.error else ""
            return f"{event.title}  {shorten(event.detail)}{failed}"
        case ToolProgress(tool=tool, text=text):
            return f"{tool}: {shorten(text)}"
        case Noticed(event=event):
            return "  ".join(part for part in (event.name, event.data.get("title"), shorten(event.text)) if part)
        case Done(error=None, reply=reply):
            return f"replied: {shorten(reply.text)}" if reply else "done"
        case Done(error=error):
            return f"failed: {shorten(error or '')}"
    return ""


class DownloadDisplay(_Display):
    def __init__(self) -> None:
        file, eta = bars.TextColumn("{task.description}"), bars.TimeRemainingColumn()
        super().__init__(file, bars.BarColumn(), bars.DownloadColumn(), eta)

    def update(self, file: str, done: int, total: int) -> None:
        self._progress.update(self._task(file, total), completed=done)


def show_comparison(run: Run) -> None:
    """The table of a run: one row a measure, one column a flow, intervals at 95 %."""
    console = _console()
    result = run.result
    table = _table(f"{', '.join(result.datasets)} on {result.model}", ["", *result.flows])
    for section in summary_rows(list(result.flows.values())):
        for title, values in section:
            table.add_row(title, *values)
        table.add_section()
    console.print(table)
    for line in visible_differences(run):
        console.print(line)
    console.print(f"run folder: {run.path}", soft_wrap=True)
    away = sum(flow.memory_unavailable for flow in result.flows.values())
    if away and run.folder.header["spec"]["mode"] in ("record", "auto"):
        console.print(
            f"{away} turns were recorded without their memory, which a replay will have: --mode auto, once memory is"
            " back, asks for what then differs."
        )
    failed = Counter(row.error for row in run.played() if row.error is not None)
    if failed:
        console.print(f"{failed.total()} of {result.turns} turns failed and score 0; {run.path / 'run.log'} has more:")
    for error, count in failed.most_common(ERRORS_SHOWN):
        console.print(f"  {count} x {error[:300]}")
    if result.status != "complete" and not (result.recordings and result.recordings.missing):
        console.print("The run stopped early: the budget is spent. Go on with --resume and a larger one.")


def show_pairs(comparison: Comparison, runs: Sequence[Run], answers: Sequence[Answer] = ()) -> None:
    """The answers first; a table a pair: one row a measure; then the turns whose answers crossed .5."""
    console = _console()
    for answer in answers:
        console.print(str(answer), soft_wrap=True)
    for pair in comparison.pairs:
        columns = ["", "n", "A", "B", "B - A", "95 %", "p", "p adj.", "d_z", "visible", ""]
        table = _table(f"A: {pair.a}   B: {pair.b}", columns)
        for d in sorted(pair.differences, key=lambda d: not d.primary):
            show = d.measure.show
            interval = f"[{brief(d.ci95[0])}, {brief(d.ci95[1])}]" if d.ci95 else "-"
            p, adjusted = ("-" if value is None else f"{value:.2g}" for value in (d.p, d.p_adjusted))
            d_z = "-" if d.d_z is None else f"{d.d_z:.2f}"
            means = (show(d.a), show(d.b), brief(d.difference, "+"))
            title = d.measure.title + (" *" if d.primary else "")
            table.add_row(title, str(d.n), *means, interval, p, adjusted, d_z, brief(d.visible), d.reading)
        console.print(table)
        for line in _flipped(pair, comparison.primary, runs):
            console.print(line, soft_wrap=True)
        for d in pair.differences:
            if d.more:
                console.print(f"{d.measure.name}: not shown; {d.more} more conversations like these would show it")
    console.print(
        f"* decides, a family of {comparison.family} tests over all pairs; the rest advises, a family of its own. 95 %:"
        f" bootstrap over conversations; p: {ASSUMED}; two-sided; adjusted by maxT; visible: the difference found in"
        " 80 % of such comparisons"
    )


def _flipped(pair: Pair, primary: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    """The turns whose answers crossed .5 and those that cost most more, worst first, and why, of what decides."""
    sides = [(pair.a, runs[0], pair.flows[0]), (pair.b, runs[-1], pair.flows[1])]
    primary = [name for name in primary if name in pair.paired]
    dearer = [name for name in primary if pair[name].measure in COSTS]
    for word, flips in (("lost", pair.lost), ("gained", pair.gained)):
        by_metric = [[flip for flip in flips if flip.metric == name] for name in primary]
        if word == "lost":
            by_metric += [worst(pair.paired[name], FLIPS_OF_A_MEASURE) for name in dearer]
        shown = [flip for found in by_metric for flip in found[:FLIPS_OF_A_MEASURE]]
        for line in told(shown, sides) if shown else ():
            yield line if line.startswith(" ") else f"{word}: {line}"
        rest = [flip for flip in flips if flip not in shown]
        yield from (f"{word}: {flip}" for flip in rest[:FLIPS_SHOWN])
        if len(rest) > FLIPS_SHOWN:
            yield f"... and {len(rest) - FLIPS_SHOWN} more {word} (--json has all)"


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
                table.add_row(*map(_cell_text, row.values()))
            console.print(table)


def _cell_text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def show_verdict(verdict: Verdict, run: Run, *, explain: bool) -> None:
    """At most 20 lines: the verdict, what decided it, what lost most, what to do. `explain`: what was replied there."""
    console = _console()
    for line in lines(verdict):
        console.print(line, soft_wrap=True)
    moved = [judged for judged in verdict.judged if judged.verdict in (*WORSE, "undecided") and judged.paired.changed]
    if explain:
        for judged in moved:
            flips = worst(judged.paired, FLIPS_SHOWN)
            for line in told(flips, [(verdict.run_id, run, judged.flow)]):
                console.print(f"    {line}" if line.startswith(" ") else f"{judged.flow}: {line}", soft_wrap=True)
    elif moved and (flips := worst(moved[0].paired, FLIPS_OF_A_MEASURE)):
        console.print(
            f"worst turns of {moved[0].flow} (--explain has more): {'; '.join(map(str, flips))}", soft_wrap=True
        )
    console.print(f"all measures: {', '.join(FILES)} in {run.path}", soft_wrap=True)


def _console() -> Console:
    # Cut to 80 columns a table would be unreadable in a log, where nobody asked for 80.
    return Console(width=None if Console().is_terminal else 140, highlight=False, markup=False)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    return table


def visible_differences(run: Run) -> list[str]:
    """For each pair with the first flow: the smallest difference that `compare` could have shown with so few turns."""
    try:
        comparison = compare(run)
    except RunError:  # a single flow, or turns that are not there yet
        return []
    lines, equal = [], []
    for pair in comparison.pairs:
        for d in pair.differences:
            if not d.primary or d.measure in COSTS:
                continue
            if not d.changed:
                equal.append(d.measure.name)
                continue
            shown = f"none, {d.clusters} conversations are too few"
            if d.visible is not None:
                shown = f"{d.visible:.2f} (80 % power, a family of {comparison.family} tests)"
            lines.append(f"smallest visible difference in {d.measure.name}, {pair.b} against {pair.a}: {shown}")
    if equal and not lines:
        names = ", ".join(dict.fromkeys(equal))
        lines = [f"smallest visible difference in {names}: unknown, as it does not differ"]
    return lines
