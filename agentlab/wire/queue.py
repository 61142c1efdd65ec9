"""Models and embedders behind their queues: connected when first asked, and waiting told from working.

A model that serves one request at a time would make parallel conversations look slow; the time in its queue is measured
here and kept out of `seconds`. Identical requests in flight are asked once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentlab.core.errors import CannotAnswer, ConfigError, RateLimited
from agentlab.core.protocols import Embedder, Model
from agentlab.wire.limits import Limits
from agentlab.wire.retries import Attempts

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
C = TypeVar("C")


class Flights:
    """Work that is under way, by key; each is done by whoever came first, within its own task."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[tuple[Any, Exception | None] | None]]] = {}

    async def share(self, key: str, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of `work`, or of the work that is under way for `key`; and whether it was the other's.

        Where the other one is broken off, who waited for it does the work.
        """
        while (others := self._waiting.get(key)) is not None:
            own = asyncio.get_running_loop().create_future()
            others.append(own)
            outcome = await own
            if outcome is not None:
                result, failure = outcome
                if failure is not None:
                    raise failure
                return result, True
        waiting = self._waiting[key] = []
        outcome = None
        try:
            result = await work()
            outcome = result, None
            return result, False
        except Exception as failure:
            outcome = None, failure
            raise
        finally:
            del self._waiting[key]
            for each in waiting:
                if not each.done():
                    each.set_result(outcome)


@dataclass(frozen=True)
class Timed(Generic[T]):
    result: T
    seconds: float
    """To the microsecond, as recordings keep it."""
    waited: float = 0.0


async def timed(work: Awaitable[T], waited: float = 0.0) -> Timed[T]:
    """What `work` brings, with the seconds it took."""
    began = time.perf_counter()
    result = await work
    return Timed(result, round(time.perf_counter() - began, 6), waited)


class Queued(Generic[C]):
    """A model or an embedder that is connected and started when it is first asked, and its queue.

    `name` is what it answers under, `endpoint` what beside its name and the request decides its answers.
    """

    def __init__(
        self, name: str, endpoint: str, connect: Callable[[], C], limits: Limits | None = None, sharers: int = 1
    ) -> None:
        """`sharers` are the processes that ask with the same keys, as far as that is known."""
        self.name = name
        self.limits = limits
        """Those of the spec, or of an adapter that learns them from its provider."""
        self.endpoint = endpoint
        self._connecting = connect
        self._sharers = sharers
        self._connected: C | None = None
        self._slots: contextlib.AbstractAsyncContextManager[object] = contextlib.nullcontext()
        self._starting = asyncio.Lock()
        self._started = False

    def connect(self) -> C:
        """The thing itself; raises CannotAnswer where it cannot be had."""
        if self._connected is None:
            try:
                self._connected = self._connecting()
            except ConfigError as problem:
                raise CannotAnswer(str(problem)) from None
            parallel = getattr(self._connected, "parallel", None)
            self._slots = asyncio.Semaphore(parallel) if parallel else contextlib.nullcontext()
            if hasattr(self._connected, "limits"):
                shared = Limits(sharers=self._sharers) if self._sharers > 1 else self._connected.limits
                self.limits = self._connected.limits = self.limits or shared
        return self._connected

    async def start(self) -> None:
        """Do what has to be done once before it can answer; that time is nobody's latency."""
        async with self._starting:
            start = getattr(self.connect(), "start", None)
            if start is not None and not self._started:
                await start()
            self._started = True

    async def ask(self, work: Callable[[C], Awaitable[T]], flow: str = "", tokens: int = 0) -> Timed[T]:
        """What `work` brings of the thing itself, once it is the turn of a call of `flow`."""
        if not self._started:
            await self.start()
        queued = time.perf_counter()
        async with self._slots:
            if self.limits is None:
                return await timed(work(self.connect()), time.perf_counter() - queued)
            await self.limits.enter(flow, tokens)
            sent = self.limits.now
            outcome: dict[str, Any] = {}
            try:
                answer = await timed(work(self.connect()), time.perf_counter() - queued)
                outcome = {"answered": True}
                return answer
            except RateLimited as refusal:
                outcome = {"refused": 0.0 if refusal.other_keys else refusal.retry_after or 0.0, "sent": sent}
                raise
            finally:
                self.limits.leave(**outcome)

    async def close(self) -> None:
        """End what was connected, where it has an end."""
        close = getattr(self._connected, "close", None)
        if close is not None:
            await close()


QueuedModel = Queued[Model]


class QueuedEmbedder(Queued[Embedder]):
    @property
    def dimensions(self) -> int:
        """0 until it is connected, as for an embedder whose vectors nobody has seen yet."""
        return self._connected.dimensions if self._connected is not None else 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 rows of unit length, shape (len(texts), dimensions)."""
        return await Attempts().run(lambda: self.connect().embed(texts))
