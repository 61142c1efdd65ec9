"""A memory that cannot be reached: every question to it says so, as if it had gone away a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.protocols import Memory


class UnavailableMemory:
    """Stands in for the backend `name` until it can be opened."""

    user = "nobody"
    embedder = None

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    async def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise MemoryUnavailable(self.reason)

    search = add = ingest = update = delete = get = facts = clear = _refuse

    async def snapshot(self) -> Memory:
        return self

    async def close(self) -> None:
        pass

    async def drop(self) -> None:
        pass


async def open_or_unavailable(name: str, connect: Callable[[], Memory]) -> Memory:
    """What `connect` opens, in a thread; where it cannot be reached, a memory that says so to whoever asks it."""
    opened: Memory | None = None
    try:
        opened = await asyncio.to_thread(connect)
        # Asked once before anybody is timed: a backend loads its library at its first use.
        await opened.facts()
        return opened
    except BaseException as problem:
        if opened is not None:
            await opened.close()
        if isinstance(problem, MemoryUnavailable):
            return UnavailableMemory(name, str(problem))
        raise
