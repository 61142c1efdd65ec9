"""Show the progress of runs, of other work and of downloads, and the steps of a turn."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Self

import rich.progress as bars
from rich.table import Column

from agentlab.core.escaping import one_line
from agentlab.core.events import Decision, ModelCall, shorten
from agentlab.core.stream import Done, NoticeItem, StepEnded, StreamItem, ToolProgress, TurnStarted
from agentlab.core.trace import Trace
from agentlab.evals.report.tables import Terminal, print_line
from agentlab.evals.store.progress import ProgressTracker, RunProgress
from agentlab.models import hub_files, weights
from agentlab.session.session import REPLY_PHASES

MAX_TITLE_WIDTH = 44
SECONDS_BETWEEN_LINES = 10.0
"""Seconds between two lines in a log; a terminal has a moving bar."""
SHOW_BAR_AFTER_SECONDS = 1.0
"""Delay of the bar for work that runs no flow and often ends at once."""
DRAWN_PER_SECOND = 5


class Display:
    """Progress bars on stderr, so that tables on stdout can be piped; without a terminal, a line now and then."""

    def __init__(self, counted: type[bars.ProgressColumn] = bars.MofNCompleteColumn) -> None:
        self._console = Terminal(stderr=True)
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            counted(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[label]}", markup=False, table_column=Column(overflow="fold")),
            console=self._console,
            auto_refresh=self._console.is_terminal,
            refresh_per_second=DRAWN_PER_SECOND,
        )
        self._tasks: dict[str, bars.TaskID] = {}
        self._trackers: dict[str, ProgressTracker] = {}
        self._last_line = float("-inf")

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

    def update(self, progress: RunProgress, what: str = "turns") -> None:
        label = one_line(progress.label)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        # Without a terminal rich draws only once; the log of a CI job needs a sign of progress.
        is_due = progress.done == progress.total or time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES
        if self._console.is_terminal:
            self.draw(what, progress.done, progress.total, label + failed)
        elif is_due and (progress.done or label):
            self._last_line = time.monotonic()
            eta = f", {progress.eta}" if progress.eta else ""
            line = f"{what}: {progress.done:,} of {progress.total:,}{eta}{failed}"
            self._console.print(line if progress.done else label)

    def count(self, what: str, done: int, total: int) -> None:
        """Show work that runs no flow, if it takes long enough."""
        if what not in self._trackers:
            delay = SHOW_BAR_AFTER_SECONDS if self._console.is_terminal else SECONDS_BETWEEN_LINES
            start = time.monotonic() + delay
            show = partial(self.update, what=what)
            self._trackers[what] = ProgressTracker(
                total, lambda progress: show(progress) if time.monotonic() >= start else None
            )
        self._trackers[what].set_progress(done, 0, total, "")

    def print_event(self, trace: Trace, item: StreamItem) -> None:
        """Print an event of a turn as a line; the text of the reply is left out, because it comes in pieces."""
        if line := line_of(item):
            print_line(self._console, f"{trace.conversation} turn {item.turn + 1}  {line}")


def fetch(names: Iterable[str]) -> None:
    """Download the weights that are missing."""
    with Display(bars.DownloadColumn) as display:
        for name in names:
            if (file := hub_files.parse(name)) is None:
                weights.fetch(name, display.draw)
            else:
                hub_files.fetch(file, display.draw)


def line_of(item: StreamItem, *, hides_reply: bool = False) -> str:
    """Format an item of the stream as a line, its parts two spaces apart; "" if it needs none.

    With `hides_reply`, the line of a call that writes the reply leaves its text out, because it is shown elsewhere.
    """
    match item:
        case TurnStarted(message=message):
            return f"asked: {_short(message.text)}"
        case StepEnded(event=event) if event.is_billable or isinstance(event, Decision):
            failed = f"FAILED: {_short(event.error)}" if event.error else ""
            # Names of hundreds of tools would leave no room for the result of the call.
            title = shorten(one_line(event.title), MAX_TITLE_WIDTH)
            truncation = event.truncation if isinstance(event, ModelCall) else ""
            detail = "" if hides_reply and event.phase in REPLY_PHASES else _short(event.detail)
            return "  ".join(part for part in (title, detail, truncation, failed) if part)
        case ToolProgress(tool=tool, text=text):
            return f"{one_line(tool)}: {_short(text)}"
        case NoticeItem(event=event):
            parts = event.name, event.data.get("title") or "", event.text
            return "  ".join(_short(part) for part in parts if part)
        case Done(error=None, reply=reply):
            return f"replied: {_short(reply.text)}" if reply else "done"
        case Done(error=error):
            return f"failed: {_short(error or '')}"
    return ""


def _short(text: str) -> str:
    return shorten(one_line(text))
