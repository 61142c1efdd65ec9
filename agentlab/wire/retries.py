"""Retries a failed call that may succeed later; no other module retries.

A provider may ask for a pause, up to a minute for all attempts at a call (`timeouts.wait`); a request for a longer one
ends the call. Without that, pauses double. They are partly random, so that conversations that failed together do not
retry together.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agentlab.core.errors import RateLimited, Retryable, UnreadableAnswer

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRIES = 3
"""Further attempts after a failed first one."""
BACKOFF_SECONDS = 0.5
"""Seconds before the first retry."""
MAX_RETRY_AFTER_SECONDS = 60.0
"""Total seconds that a call waits because a provider asks for it, by default."""
MAX_UNREADABLE = 2
"""Unreadable responses after which a call ends: a further one would cost as much and hardly differ."""

_jitter = random.Random()


class Attempts:
    """Attempts at one call: a first one and at most `retries` more."""

    def __init__(self, retries: int = RETRIES, max_wait_seconds: float | None = None) -> None:
        self.number = 1
        """Number of the current attempt."""
        self.lost_seconds = 0.0
        """Seconds of failed attempts and of the pauses after them."""
        self._started = 0.0
        self._sent: float | None = None
        self._retries_left = retries
        self._max_wait_seconds = MAX_RETRY_AFTER_SECONDS if max_wait_seconds is None else max_wait_seconds
        self._pauses = self._keys_tried = self._unreadable = 0
        self._requested_seconds = 0.0

    def begin(self) -> None:
        self._started, self._sent = time.perf_counter(), None

    def mark_sent(self) -> None:
        """Mark the attempt as sent now; before, it waited in a queue."""
        self._sent = time.perf_counter()

    def interrupted_seconds(self) -> tuple[float, float | None]:
        """Return the seconds waited, and the seconds since the running attempt was sent (None: not sent)."""
        now = time.perf_counter()
        seconds_since_sent = None if self._sent is None else now - self._sent
        return self.lost_seconds + now - self._started - (seconds_since_sent or 0.0), seconds_since_sent

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first successful attempt; raises the error of the last one."""
        while True:
            self.begin()
            try:
                return await work()
            except Exception as failure:
                await self.pause_after(failure)

    async def pause_after(self, failure: Exception) -> None:
        """Wait for the next attempt; raises `failure` if there is none."""
        self.lost_seconds += time.perf_counter() - self._started
        seconds = self._pause_after(failure)
        if seconds is None:
            raise failure
        log.warning("%s; attempt %d, again in %.1f s", failure, self.number, seconds)
        self._started, self._sent = time.perf_counter(), None
        if seconds > 0:
            await asyncio.sleep(seconds)
        self.lost_seconds += seconds
        self.number += 1

    def _pause_after(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none.

        A call changes to another API key without a pause, and without counting an attempt, at most once for each key.
        A rejected key may be free again before a slow call ends, so this needs a limit.
        """
        if isinstance(error, RateLimited) and self._keys_tried < error.other_keys:
            self._keys_tried += 1
            return 0.0
        if not isinstance(error, Retryable) or self._pauses == self._retries_left:
            return None
        self._unreadable += isinstance(error, UnreadableAnswer)
        if self._unreadable == MAX_UNREADABLE:
            return None
        self._pauses += 1
        pause: float = BACKOFF_SECONDS * 2 ** (self._pauses - 1) * (0.75 + _jitter.random() / 2)
        if error.retry_after is not None:
            if error.retry_after > self._max_wait_seconds:
                longest = f"longer than the longest wait ({self._max_wait_seconds:g} s)"
                raise type(error)(f"{error}; it asks to wait {error.retry_after:.0f} s, {longest}") from None
            requested = min(error.retry_after, self._max_wait_seconds - self._requested_seconds)
            self._requested_seconds += requested
            pause = max(pause, requested)
        return pause
