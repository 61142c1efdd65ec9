"""Identical requests in flight are asked once, and waiting in a queue is told from working.

A model that serves one request at a time would make parallel conversations look slow; the time in its queue is
measured here and kept out of `seconds`. So is what an embedder's retries take; those of a model are the session's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentlab.core.errors import ModelError
from agentlab.core.messages import Completion, Request
from agentlab.core.protocols import Embedder, Emit, Model
from agentlab.wire.retries import Attempts

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass
class _Flight:
    task: asyncio.Task[Any]
    waiting: int = 0


class Flights:
    """Work that is under way, by key."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight] = {}

    async def share(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of `work`, or of the work that is under way for `key`; and whether it was the other's."""
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task), joined
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 or flight.task.done():
                flight.task.cancel()
                if self._flights.get(key) is flight:
                    del self._flights[key]


@dataclass(frozen=True)
class Timed(Generic[T]):
    result: T
    seconds: float
    """To the microsecond, as recordings keep it."""
    waited: float


class Queue:
    """As many at once as the other side can serve; None: no limit."""

    def __init__(self, parallel: int | None) -> None:
        self._slots: contextlib.AbstractAsyncContextManager[object] = (
            asyncio.Semaphore(parallel) if parallel else contextlib.nullcontext()
        )

    async def run(self, work: Callable[[], Awaitable[T]]) -> Timed[T]:
        queued = time.perf_counter()
        async with self._slots:
            began = time.perf_counter()
            result = await work()
            return Timed(result, round(time.perf_counter() - began, 6), began - queued)


C = TypeVar("C")


class _Queued(Generic[C]):
    """Something that is connected and started when it is first asked, behind its queue."""

    def __init__(self, name: str, endpoint: str, connect: Callable[[], C]) -> None:
        self.name = name
        """What it answers under."""
        self.endpoint = endpoint
        """What beside its name and the request decides its answers."""
        self._connecting = connect
        self._connected: C | None = None
        self._queue = Queue(None)
        self._starting = asyncio.Lock()
        self._started = False

    def connect(self) -> C:
        """The thing itself; raises ConfigError where it cannot be had."""
        if self._connected is None:
            self._connected = self._connecting()
            self._queue = Queue(getattr(self._connected, "parallel", None))
        return self._connected

    async def start(self) -> None:
        """Do what has to be done once before it can answer; that time is nobody's latency."""
        async with self._starting:
            start = getattr(self.connect(), "start", None)
            if start is not None and not self._started:
                await start()
            self._started = True

    async def close(self) -> None:
        """End what was connected, where it has an end."""
        close = getattr(self._connected, "close", None)
        if close is not None:
            await close()


class QueuedModel(_Queued[Model]):
    async def ask(self, request: Request, emit: Emit) -> Timed[Completion]:
        await self.start()
        return await self._queue.run(lambda: self.connect().complete(request, emit))


class QueuedEmbedder(_Queued[Embedder]):
    @property
    def dimensions(self) -> int:
        """0 until it is connected, as for an embedder whose vectors nobody has seen yet."""
        return self._connected.dimensions if self._connected is not None else 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        return await _retried(lambda: self.connect().embed(texts))

    async def ask(self, text: str) -> Timed[np.ndarray]:
        """One query, timed, shape (dimensions,)."""
        await self.start()
        began = time.perf_counter()
        timed = await _retried(lambda: self._queue.run(lambda: self.connect().embed([text])))
        return Timed(timed.result[0], timed.seconds, max(0.0, time.perf_counter() - began - timed.seconds))


async def _retried(work: Callable[[], Awaitable[T]]) -> T:
    attempts = Attempts()
    while True:
        try:
            return await work()
        except ModelError as error:
            pause = attempts.pause_after(error)
            if pause is None:
                raise
            log.warning("%s; again in %.1f s", error, pause)
            await asyncio.sleep(pause)
