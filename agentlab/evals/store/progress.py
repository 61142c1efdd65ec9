"""Progress of a run and the estimated time left."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

SECONDS_ALONE = 0.005
"""Seconds that turns without waiting may hold the event loop."""
ROWS_BETWEEN_REPORTS = 1000
"""Rows between two progress reports of work that plays no flow."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Argument of `on_progress`, which is called before the first turn and after each turn."""

    done: int
    total: int
    failed: int
    seconds_left: float | None = None
    """Estimate from the pace of the last turns; None before the first turn ends."""
    label: str = ""

    @property
    def eta(self) -> str:
        """Return the time left in words, or "" if it is unknown."""
        if (seconds := self.seconds_left) is None:
            return ""
        return f"about {max(seconds, 0):.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


class ProgressTracker:
    """Counts ended turns and estimates the time left from the pace of the last 32 turns.

    Earlier turns would mislead: a resumed run first replays recorded turns, which take no time.
    """

    def __init__(self, total: int, on_progress: Callable[[RunProgress], None]) -> None:
        self.total = total
        self._on_progress = on_progress
        self.done = self.failed = 0
        self._ends: deque[tuple[float, int]] = deque(maxlen=33)
        """Times at which turns ended, in seconds, and the count of ended turns at each."""
        self._paused_at = 0.0

    def begin(self) -> None:
        self._ends.append((time.perf_counter(), self.done))
        self._report("")

    def turn_done(self, failed: bool, label: str) -> None:
        self.set_progress(self.done + 1, self.failed + failed, self.total, label)

    def set_progress(self, done: int, failed: int, total: int, label: str) -> None:
        """Set the counts and report them; `done` falls if workers replay turns that a dead worker lost."""
        if done < self.done:
            self._ends.clear()
        self.done, self.failed, self.total = done, failed, total
        self._ends.append((time.perf_counter(), done))
        self._report(label)

    async def yield_to_loop(self) -> None:
        """Yield to the event loop now and then: a replay never waits, so an interrupt needs this chance."""
        if self._ends[-1][0] - self._paused_at > SECONDS_ALONE:
            self._paused_at = self._ends[-1][0]
            await asyncio.sleep(0)

    def report_indexing(self, done: int, total: int) -> None:
        if done < total:  # a small corpus is done before a user can read it
            self._report(f"indexing: {done} of {total} passages")

    def _report(self, label: str) -> None:
        seconds_left = None
        if self._ends and (turns := self._ends[-1][1] - self._ends[0][1]):
            seconds_left = (self._ends[-1][0] - self._ends[0][0]) / turns * (self.total - self.done)
        self._on_progress(
            RunProgress(done=self.done, total=self.total, failed=self.failed, seconds_left=seconds_left, label=label)
        )
