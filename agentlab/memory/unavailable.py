"""Stand-in for a memory that cannot be opened: every operation raises MemoryUnavailable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.protocols import Memory


class UnavailableMemory:
    """Stand-in for the backend `name` until it can be opened."""

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

    drop = close


async def open_or_unavailable(name: str, connect: Callable[[], Memory], *, preload: bool = True) -> Memory:
    """Call `connect` in a thread and return its memory; return an UnavailableMemory if it cannot be reached.

    A backend loads its library at its first use. `preload` moves this use before the first timed call.
    """
    try:
        memory = await asyncio.to_thread(connect)
    except MemoryUnavailable as problem:
        return UnavailableMemory(name, str(problem))
    try:
        if preload:
            with contextlib.suppress(MemoryUnavailable):
                await memory.facts()
    except BaseException:
        await memory.close()
        raise
    return memory
