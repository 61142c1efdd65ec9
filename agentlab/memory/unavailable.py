"""Stand-in for a memory that cannot be opened: every operation raises MemoryUnavailable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.protocols import Memory
from agentlab.memory.base import SLOW_SECONDS, UNAVAILABLE_TTL_SECONDS


class UnavailableMemory:
    """Stand-in for the backend `name` until it can be opened."""

    user = "nobody"
    embedder = None

    def __init__(self, name: str, reason: str, retry_at: float = 0.0) -> None:
        self.name = name
        self.reason = reason
        self._retry_at = retry_at

    @property
    def should_retry(self) -> bool:
        """False for UNAVAILABLE_TTL_SECONDS after a slow failure."""
        return time.monotonic() >= self._retry_at

    async def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise MemoryUnavailable(self.reason)

    search = add = ingest = update = delete = get = facts = clear = _refuse

    async def snapshot(self) -> Memory:
        return self

    async def close(self) -> None:
        pass

    drop = close


async def open_or_unavailable(name: str, connect: Callable[[], Memory]) -> Memory:
    """Call `connect` in a thread and return its memory; return an UnavailableMemory if it cannot be reached."""
    started = time.monotonic()
    try:
        memory = await asyncio.to_thread(connect)
        try:
            # A backend loads its library at its first use; do this before the first timed call.
            await memory.facts()
        except BaseException:
            await memory.close()
            raise
        return memory
    except MemoryUnavailable as problem:
        now = time.monotonic()
        return UnavailableMemory(
            name, str(problem), now + UNAVAILABLE_TTL_SECONDS if now - started > SLOW_SECONDS else 0.0
        )
