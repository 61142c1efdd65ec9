"""A memory that cannot be reached: every question to it says so, as if it had gone away a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.messages import Added, Fact
from agentlab.core.protocols import Memory, NewId


class Away:
    """Stands in for the backend `name` until it can be opened."""

    user = "nobody"
    embedder = None

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason

    def _refuse(self) -> NoReturn:
        raise MemoryUnavailable(self.reason)

    async def search(
        self, text: str, vector: Any, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        self._refuse()

    async def add(
        self, text: str, vector: Any, *, created: datetime, new_id: NewId, duplicate_at: float | None = None
    ) -> Added:
        self._refuse()

    async def ingest(
        self, texts: Sequence[str], vectors: Any, *, created: Sequence[datetime], new_id: NewId
    ) -> tuple[Fact, ...]:
        self._refuse()

    async def update(self, fact_id: str, text: str, vector: Any, *, created: datetime, new_id: NewId) -> Fact | None:
        self._refuse()

    async def delete(self, fact_id: str) -> bool:
        self._refuse()

    async def get(self, fact_id: str) -> Fact | None:
        self._refuse()

    async def facts(self) -> tuple[Fact, ...]:
        self._refuse()

    async def clear(self) -> int:
        self._refuse()

    async def snapshot(self) -> Memory:
        return self

    async def close(self) -> None:
        pass

    async def drop(self) -> None:
        pass


async def open_or_away(name: str, connect: Callable[[], Memory]) -> Memory:
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
            return Away(name, str(problem))
        raise
