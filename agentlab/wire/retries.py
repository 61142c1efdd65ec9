"""How long to wait before a call that failed is made again, for the session and the embedder's queue.

A provider that says when to come back is believed, up to a minute; else the pauses double, with some chance in them, so
that conversations that failed together do not come back together.
"""

from __future__ import annotations

import random

from agentlab.core.errors import RateLimited, Retryable

RETRIES = 3
"""How often a call is made again that may go through later."""
BACK_OFF = 0.5
"""Seconds before the first retry."""
LONGEST = 60.0

_jitter = random.Random()


class Attempts:
    """The attempts at one call, at most `retries` of them after a first one that failed."""

    def __init__(self, retries: int = RETRIES) -> None:
        self._left = retries
        self._failures = self._spared = 0

    @property
    def number(self) -> int:
        """Of the attempt that is under way, from 1."""
        return 1 + self._failures + self._spared

    def pause_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None where there is none.

        Another API key costs no pause and no attempt, but only so often: slow calls outlast the time for which a key is
        set aside.
        """
        if isinstance(error, RateLimited) and self._spared < error.other_keys:
            self._spared += 1
            return 0.0
        if not isinstance(error, Retryable) or self._failures == self._left:
            return None
        self._failures += 1
        pause: float = BACK_OFF * 2 ** (self._failures - 1) * (0.75 + _jitter.random() / 2)
        if isinstance(error, RateLimited) and error.retry_after is not None:
            pause = max(pause, min(error.retry_after, LONGEST))
        return pause
