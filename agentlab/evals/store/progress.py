"""How far a run is, and how long the rest takes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

SECONDS_ALONE = 0.005
"""How long turns that wait for nothing go on before others have the loop."""
ROWS_BETWEEN_REPORTS = 1000
"""Of work that asks no flow."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Handed to `on_progress` before the first turn and after each one."""

    done: int
    total: int
    failed: int
    seconds_left: float | None = None
    """At the pace of the last turns; None before the first one is done."""
    label: str = ""

    @property
    def eta(self) -> str:
        """In words; "" where it is not known."""
        return "" if self.seconds_left is None else time_left(self.seconds_left)


def time_left(seconds: float) -> str:
    return f"about {max(seconds, 0):.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


class ProgressTracker:
    """How far the run is, and how long the rest takes at the pace of the last turns.

    Only those tell: turns that a recording answers come first in a continued run, and at once.
    """

    def __init__(self, total: int, on_progress: Callable[[RunProgress], None]) -> None:
        self.total = total
        self._on_progress = on_progress
        self.done = self.failed = 0
        self.label = ""
        self._ends: deque[tuple[float, int]] = deque(maxlen=33)
        """When turns were done, by the clock, and how many by then."""
        self._paused_at = 0.0

    def begin(self) -> None:
        self._ends.append((time.perf_counter(), self.done))
        self._report("")

    def turn_done(self, failed: bool, label: str) -> None:
        self.set_progress(self.done + 1, self.failed + failed, self.total, label)

    def set_progress(self, done: int, failed: int, total: int, label: str) -> None:
        """As whoever counts has it; less is done than before where workers begin anew what one of them lost."""
        if done < self.done:
            self._ends.clear()
        self.done, self.failed, self.total, self.label = done, failed, total, label
        self._ends.append((time.perf_counter(), done))
        self._report(label)

    async def yield_to_loop(self) -> None:
        """Let others have the loop now and then: a replay waits for nothing, and who wants to stop it comes in here."""
        if self._ends[-1][0] - self._paused_at > SECONDS_ALONE:
            self._paused_at = self._ends[-1][0]
            await asyncio.sleep(0)

    def report_indexing(self, done: int, total: int) -> None:
        if done < total:  # a small corpus is done before anybody could read it
            self._report(f"indexing: {done} of {total} passages")

    def _report(self, label: str) -> None:
        left = None
        if self._ends and (turns := self._ends[-1][1] - self._ends[0][1]):
            left = (self._ends[-1][0] - self._ends[0][0]) / turns * (self.total - self.done)
        self._on_progress(
            RunProgress(done=self.done, total=self.total, failed=self.failed, seconds_left=left, label=label)
        )
