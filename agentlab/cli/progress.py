"""What the command line shows while something goes on: a run with its ETA, a turn step by step, downloads."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

import rich.progress as bars
from rich.table import Column

from agentlab.core.events import Decision, shorten
from agentlab.core.shown import one_line
from agentlab.core.stream import Done, Item, Noticed, StepEnded, ToolProgress, TurnBegun
from agentlab.core.trace import Trace
from agentlab.evals.report.tables import Terminal, print_line
from agentlab.evals.store.pace import RunProgress, time_left
from agentlab.models import weights

WIDEST_TITLE = 44
SECONDS_BETWEEN_LINES = 10.0
"""Of progress in a log; on a terminal the bar moves all the time."""
SECONDS_OF_PATIENCE = 1.0
"""Before a bar is drawn of what asks no flow."""
DRAWN_PER_SECOND = 5


class _Display:
    """Bars on stderr, so that tables on stdout can be piped; in a log a line now and then."""

    counted: type[bars.ProgressColumn] = bars.MofNCompleteColumn

    def __init__(self) -> None:
        self._console = Terminal(stderr=True)
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            self.counted(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[label]}", markup=False, table_column=Column(overflow="fold")),
            console=self._console,
            auto_refresh=self._console.is_terminal,
            refresh_per_second=DRAWN_PER_SECOND,
        )
        self._tasks: dict[str, bars.TaskID] = {}
        self._said = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._tasks:
            self._bars.stop()

    def draw(self, what: str, done: int, total: int, label: str = "") -> None:
        if what not in self._tasks:
            self._bars.start()
            self._tasks[what] = self._bars.add_task(what, total=total, label="")
        self._bars.update(self._tasks[what], completed=done, total=total, label=label)

    def _log(self, line: str, is_last: bool) -> None:
        """Without a terminal rich draws only once; a log of a CI job still wants to see that something moves."""
        now = time.monotonic()
        if is_last or now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            self._console.print(line)


class DownloadDisplay(_Display):
    counted = bars.DownloadColumn


def fetch(names: Iterable[str]) -> None:
    """Download the weights that are missing."""
    with DownloadDisplay() as display:
        for name in names:
            weights.fetch(name, display.draw)


class RunDisplay(_Display):
    def update(self, progress: RunProgress) -> None:
        label = one_line(progress.label)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        self.draw("turns", progress.done, progress.total, label + failed)
        if not self._console.is_terminal and (progress.done or label):
            eta = f", {progress.eta}" if progress.eta else ""
            line = f"turn {progress.done} of {progress.total}{eta}{failed}" if progress.done else label
            self._log(line, progress.done == progress.total)

    def tell(self, trace: Trace, item: Item) -> None:
        """Print what happens in a turn, a line each; not its text, which comes in pieces."""
        if line := line_of(item):
            print_line(self._console, f"{trace.conversation} turn {item.turn}  {line}")


class CountDisplay(_Display):
    """Of work that asks no flow; what is done at once shows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: dict[str, tuple[float, int]] = {}
        """When each was heard of first, and how much had been done by then."""

    def update(self, what: str, done: int, total: int) -> None:
        begun, first = self._begun.setdefault(what, (time.monotonic(), done))
        seconds = time.monotonic() - begun
        if self._console.is_terminal and seconds > SECONDS_OF_PATIENCE:
            self.draw(what, done, total)
        elif not self._console.is_terminal and done > first and seconds >= SECONDS_BETWEEN_LINES:
            left = time_left(seconds / (done - first) * max(0, total - done))
            self._log(f"{what}: {done:,} of {total:,}, {left}", False)


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
