"""How long to wait before a call that failed is made again, for the session and the embedder's queue.

A provider that says when to come back is believed, up to a minute; else the pauses double, with some chance in them, so
that conversations that failed together do not come back together.
"""

from __future__ import annotations

import random

from agentlab.errors import ModelError, RateLimited

RETRIES = 3
"""How often a call is made again that may go through later."""
BACK_OFF = 0.5
"""Seconds before the first retry."""
LONGEST = 60.0

_jitter = random.Random()


def spare_key(error: ModelError, spared: int) -> bool:
    """True where another API key can be tried, which costs no pause and no attempt, but only so often: slow calls
    outlast the time for which a key is set aside."""
    return isinstance(error, RateLimited) and spared < error.other_keys


def pause_after(error: ModelError, failures: int) -> float:
    """Seconds to wait after the `failures`-th failure, counted from 1."""
    pause: float = BACK_OFF * 2 ** (failures - 1) * (0.75 + _jitter.random() / 2)
    if isinstance(error, RateLimited) and error.retry_after is not None:
        pause = max(pause, min(error.retry_after, LONGEST))
    return pause
