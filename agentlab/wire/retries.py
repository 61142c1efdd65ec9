"""Makes a call again that failed and may go through later; the only place where anything is tried twice.

A provider that says when to come back is believed, up to a minute for all attempts at a call; else the pauses double,
with some chance in them, so that conversations that failed together do not come back together.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentlab.core.errors import RateLimited, Retryable

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRIES = 3
"""How often a call is made again that may go through later."""
BACK_OFF = 0.5
"""Seconds before the first retry."""
LONGEST = 60.0
"""Seconds that a call waits in all because a provider asked for it."""

_jitter = random.Random()


class Attempts:
    """The attempts at one call, at most `retries` of them after a first one that failed."""

    def __init__(self, retries: int = RETRIES) -> None:
        self.number = 1
        """Of the attempt that is under way."""
        self.lost = 0.0
        """Seconds spent in attempts that failed and in the pauses after them."""
        self.is_pausing = False
        self._sent: float | None = None
        self._retries_left = retries
        self._pauses = self._keys_tried = 0
        self._began = self._asked_to_wait = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the attempt or the pause that is under way began."""
        return time.perf_counter() - self._began

    def sending(self) -> None:
        """Now the attempt leaves the house; before, it stood in a queue."""
        self._sent = time.perf_counter()

    @property
    def asked(self) -> float | None:
        """Seconds since the attempt that is under way was sent; None for one that was not, or during a pause."""
        return None if self._sent is None or self.is_pausing else time.perf_counter() - self._sent

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds; raises what the last one raised."""
        while True:
            self._began, self._sent = time.perf_counter(), None
            try:
                return await work()
            except Exception as failure:
                self.lost += self.spent
                pause = self._pause_after(failure)
                if pause is None:
                    raise
                log.warning("%s; attempt %d, again in %.1f s", failure, self.number, pause)
            await self._pause(pause)
            self.number += 1

    async def _pause(self, seconds: float) -> None:
        self._began, self.is_pausing = time.perf_counter(), True
        if seconds > 0:
            await asyncio.sleep(seconds)
        self.lost += seconds
        self.is_pausing = False

    def _pause_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None where there is none.

        Another API key costs no pause and no attempt, but only so often: slow calls outlast the time for which a key is
        set aside.
        """
        if isinstance(error, RateLimited) and self._keys_tried < error.other_keys:
            self._keys_tried += 1
            return 0.0
        if not isinstance(error, Retryable) or self._pauses == self._retries_left:
            return None
        self._pauses += 1
        pause: float = BACK_OFF * 2 ** (self._pauses - 1) * (0.75 + _jitter.random() / 2)
        if isinstance(error, RateLimited) and error.retry_after is not None:
            asked = min(error.retry_after, LONGEST - self._asked_to_wait)
            self._asked_to_wait += asked
            pause = max(pause, asked)
        return pause
