"""What the command line shows while something goes on: a run with its ETA, a turn step by step, downloads."""

from __future__ import annotations

import time
from typing import Any, Self

import rich.progress as bars
from rich.table import Column

from agentlab.core.events import Decision, shorten
from agentlab.core.shown import one_line
from agentlab.core.stream import Done, Item, Noticed, StepEnded, ToolProgress, TurnBegun
from agentlab.core.trace import Trace
from agentlab.evals.report.tables import Terminal, print_line
from agentlab.evals.store.pace import RunProgress, time_left

WIDEST_TITLE = 44
SECONDS_BETWEEN_LINES = 10.0
"""Of progress in a log; on a terminal the bar moves all the time."""
SECONDS_OF_PATIENCE = 1.0
"""Before a bar is drawn of what asks no flow."""
DRAWN_PER_SECOND = 5
SECONDS_BETWEEN_UPDATES = 1 / DRAWN_PER_SECOND
"""As often as the bar is drawn: of thousands of turns a second nobody sees each."""


class _Display:
    """A progress bar on stderr, so that tables on stdout can be piped."""

    def __init__(self, *columns: Any) -> None:
        console = Terminal(stderr=True)
        self._progress = bars.Progress(
            *columns, console=console, auto_refresh=console.is_terminal, refresh_per_second=DRAWN_PER_SECOND
        )
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
        label = bars.TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
        turns, eta = bars.MofNCompleteColumn(), bars.TimeRemainingColumn()
        super().__init__(bars.TextColumn("turns"), bars.BarColumn(), turns, eta, label)
        self._said = self._updated = float("-inf")
        self._last: RunProgress | None = None
        """What was not shown yet."""

    def __exit__(self, *reason: object) -> None:
        if self._last is not None:
            self._updated = float("-inf")
            self.update(self._last)
        super().__exit__(*reason)

    def update(self, progress: RunProgress) -> None:
        now = time.monotonic()
        if self._tasks and progress.done < progress.total and now - self._updated < SECONDS_BETWEEN_UPDATES:
            self._last = progress
            return
        self._last = None
        self._updated = now
        task, label = self._task("run", progress.total), one_line(progress.label)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        failed += f"  {progress.limits}" if progress.limits else ""
        self._progress.update(task, completed=progress.done, total=progress.total, description=label + failed)
        # Without a terminal rich draws only once; a log of a CI job still wants to see that something moves.
        waited = now - self._said >= SECONDS_BETWEEN_LINES or progress.done == progress.total
        if not self._progress.console.is_terminal and (progress.done or label) and waited:
            self._said = now
            eta = f", {progress.eta}" if progress.eta else ""
            line = f"turn {progress.done} of {progress.total}{eta}{failed}" if progress.done else label
            self._progress.console.print(line)

    def tell(self, trace: Trace, item: Item) -> None:
        """Print what happens in a turn, a line each; not its text, which comes in pieces."""
        if line := line_of(item):
            print_line(self._progress.console, f"{trace.conversation} turn {item.turn}  {line}")


class CountDisplay(_Display):
    """Of work that asks no flow; what is done at once shows nothing."""

    def __init__(self) -> None:
        what, eta = bars.TextColumn("{task.description}"), bars.TimeRemainingColumn()
        super().__init__(what, bars.BarColumn(), bars.MofNCompleteColumn(), eta)
        self._begun: dict[str, tuple[float, int]] = {}
        """When each was heard of first, and how much had been done by then."""
        self._said = 0.0

    def update(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        begun, first = self._begun.setdefault(what, (now, done))
        if not self._progress.console.is_terminal:
            if done > first and now - max(self._said, begun) >= SECONDS_BETWEEN_LINES:
                self._said = now
                left = time_left((now - begun) / (done - first) * max(0, total - done))
                self._progress.console.print(f"{what}: {done:,} of {total:,}, {left}")
        elif what in self._tasks or now - begun > SECONDS_OF_PATIENCE:
            self._progress.update(self._task(what, total), completed=done)


def line_of(item: Item) -> str:
    """An item of the stream as a line for a terminal, its parts two spaces apart; "" for those that need none."""
    match item:
        case TurnBegun(asked=asked):
            return f"asked: {_short(asked.text)}"
        case StepEnded(event=event) if event.costed or isinstance(event, Decision):
            failed = f"FAILED: {_short(event.error)}" if event.error else ""
            # Of hundreds of tools the names would leave no room for what came of the call.
            title = shorten(one_line(event.title), WIDEST_TITLE)
            return "  ".join(part for part in (title, _short(event.detail), failed) if part)
        case ToolProgress(tool=tool, text=text):
            return f"{one_line(tool)}: {_short(text)}"
        case Noticed(event=event):
            parts = event.name, event.data.get("title") or "", event.text
            return "  ".join(_short(part) for part in parts if part)
        case Done(error=None, reply=reply):
            return f"replied: {_short(reply.text)}" if reply else "done"
        case Done(error=error):
            return f"failed: {_short(error or '')}"
    return ""


def _short(text: str) -> str:
    return shorten(one_line(text))


class DownloadDisplay(_Display):
    def __init__(self) -> None:
        file, eta = bars.TextColumn("{task.description}"), bars.TimeRemainingColumn()
        super().__init__(file, bars.BarColumn(), bars.DownloadColumn(), eta)

    def update(self, file: str, done: int, total: int) -> None:
        self._progress.update(self._task(file, total), completed=done)
