"""A memory that cannot be reached: every question to it says so, as if it had gone away a moment later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.protocols import Memory
from agentlab.memory.base import SLOW_SECONDS, UNAVAILABLE_TTL_SECONDS


class UnavailableMemory:
    """Stands in for the backend `name` until it can be opened."""

    user = "nobody"
    embedder = None

    def __init__(self, name: str, reason: str, again_at: float = 0.0) -> None:
        self.name = name
        self.reason = reason
        self._again_at = again_at

    @property
    def should_retry(self) -> bool:
        """False for a while after it took long to be found away."""
        return time.monotonic() >= self._again_at

    async def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise MemoryUnavailable(self.reason)

    search = add = ingest = update = delete = get = facts = clear = _refuse

    async def snapshot(self) -> Memory:
        return self

    async def close(self) -> None:
        pass

    drop = close


async def open_or_unavailable(name: str, connect: Callable[[], Memory]) -> Memory:
    """What `connect` opens, in a thread; where it cannot be reached, a memory that says so to whoever asks it."""
    began = time.monotonic()
    try:
        opened = await asyncio.to_thread(connect)
        try:
            # Asked once before anybody is timed: a backend loads its library at its first use.
            await opened.facts()
        except BaseException:
            await opened.close()
            raise
        return opened
    except MemoryUnavailable as problem:
        now = time.monotonic()
        return UnavailableMemory(
            name, str(problem), now + UNAVAILABLE_TTL_SECONDS if now - began > SLOW_SECONDS else 0.0
        )
