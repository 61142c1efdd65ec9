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
"""Further attempts at a call that may succeed later."""
BACKOFF_SECONDS = 0.5
"""Seconds before the first retry."""
MAX_RETRY_AFTER_SECONDS = 60.0
"""Seconds that a call waits in all because a provider asked for it."""

_jitter = random.Random()


class Attempts:
    """The attempts at one call, at most `retries` of them after a first one that failed."""

    def __init__(self, retries: int = RETRIES) -> None:
        self.number = 1
        """The number of the current attempt."""
        self.lost_seconds = 0.0
        """Seconds spent in attempts that failed and in the pauses after them."""
        self._began = 0.0
        self._sent: float | None = None
        self._retries_left = retries
        self._pauses = self._keys_tried = 0
        self._asked_to_wait = 0.0

    def begin(self) -> None:
        self._began, self._sent = time.perf_counter(), None

    def mark_sent(self) -> None:
        """Now the attempt leaves the house; before, it stood in a queue."""
        self._sent = time.perf_counter()

    def broken_off(self) -> tuple[float, float | None]:
        """Seconds waited so far, and those since the attempt that is under way was sent; None where none was."""
        now = time.perf_counter()
        seconds_since_sent = None if self._sent is None else now - self._sent
        return self.lost_seconds + now - self._began - (seconds_since_sent or 0.0), seconds_since_sent

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds; raises what the last one raised."""
        while True:
            self.begin()
            try:
                return await work()
            except Exception as failure:
                await self.pause_after(failure)

    async def pause_after(self, failure: Exception) -> None:
        """Wait until it is time for another attempt; raises `failure` where there is none."""
        self.lost_seconds += time.perf_counter() - self._began
        seconds = self._pause_after(failure)
        if seconds is None:
            raise failure
        log.warning("%s; attempt %d, again in %.1f s", failure, self.number, seconds)
        self._began, self._sent = time.perf_counter(), None
        if seconds > 0:
            await asyncio.sleep(seconds)
        self.lost_seconds += seconds
        self.number += 1

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
        pause: float = BACKOFF_SECONDS * 2 ** (self._pauses - 1) * (0.75 + _jitter.random() / 2)
        if isinstance(error, RateLimited) and error.retry_after is not None:
            asked = min(error.retry_after, MAX_RETRY_AFTER_SECONDS - self._asked_to_wait)
            self._asked_to_wait += asked
            pause = max(pause, asked)
        return pause
