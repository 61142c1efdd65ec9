"""Models and embedders behind their queues: connected when first asked, and waiting told from working.

A model that serves one request at a time would make parallel conversations look slow; the time in its queue is measured
here and kept out of `seconds`. Identical requests in flight are asked once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from agentlab.core.errors import ConfigError, ModelUnavailable, RateLimited, Unreachable
from agentlab.core.protocols import Embedder, Model
from agentlab.wire.limits import CURRENT, RateLimiter
from agentlab.wire.retries import Attempts

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
C = TypeVar("C")


class SingleFlight:
    """Work that is under way, by key; each is done by whoever came first, within its own task."""

    def __init__(self) -> None:
        self._in_flight: dict[str, asyncio.Future[Any]] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of `work`, or of the work that is under way for `key`; and whether it was the other's.

        Where the other one is broken off, who waited for it does the work.
        """
        while (other := self._in_flight.get(key)) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                return other.result(), True
        flight = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
            flight.set_result(result)
            return result, False
        except Exception as failure:
            flight.set_exception(failure)
            flight.exception()  # it is raised here; nobody else has to wait for it
            raise
        finally:
            flight.cancel()  # nothing, where it has ended
            del self._in_flight[key]


class Timed(NamedTuple, Generic[T]):
    result: T
    seconds: float
    """To the microsecond, as recordings keep it."""
    waited: float = 0.0


@dataclass(eq=False)
class LazyService(Generic[C]):
    """A model or an embedder that is connected and started when it is first asked, and its queue."""

    name: str
    """It answers under that."""
    endpoint: str
    """Decides its answers beside its name and the request."""
    factory: Callable[[], C]
    limiter: RateLimiter | None = None
    """Given by the spec, or made for an adapter that is rate limited."""
    process_count: int = 1
    """Processes that ask with the same keys, as far as that is known."""
    _connected: C | None = field(default=None, init=False)
    _slots: contextlib.AbstractAsyncContextManager[object] = field(default_factory=contextlib.nullcontext, init=False)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _started: bool = field(default=False, init=False)

    def connect(self) -> C:
        """The thing itself; raises ModelUnavailable where it cannot be had."""
        if self._connected is None:
            try:
                self._connected = self.factory()
            except ConfigError as problem:
                raise ModelUnavailable(str(problem)) from None
            parallel = getattr(self._connected, "parallel", None)
            self._slots = asyncio.Semaphore(parallel) if parallel else contextlib.nullcontext()
            if self.limiter is None and getattr(self._connected, "is_rate_limited", False):
                self.limiter = RateLimiter(process_count=self.process_count)
        return self._connected

    async def start(self) -> None:
        """Do what has to be done once before it can answer; that time is nobody's latency."""
        async with self._starting:
            start = getattr(self.connect(), "start", None)
            if start is not None and not self._started:
                await start()
            self._started = True

    async def ask(
        self,
        work: Callable[[C], Awaitable[T]],
        flow: str = "",
        tokens: int = 0,
        mark_sent: Callable[[], None] = lambda: None,
        within: float | None = None,
    ) -> Timed[T]:
        """The result of `work` on the thing itself, in at most `within` seconds, once it is the turn of `flow`.

        `mark_sent` is called at that moment.
        """
        if not self._started:
            await self.start()
        queued = time.perf_counter()
        outcome: dict[str, Any] = {}
        async with self._slots:
            ticket = await self.limiter.acquire(flow, tokens) if self.limiter is not None else None
            CURRENT.set(ticket)
            mark_sent()
            began = time.perf_counter()
            try:
                async with asyncio.timeout(within) as timeout:
                    result = await work(self.connect())
                outcome = {"answered": True}
            except RateLimited as refusal:
                outcome = {"refused": 0.0 if refusal.other_keys else refusal.retry_after or 0.0}
                raise
            except TimeoutError:
                if not timeout.expired():
                    raise
                raise Unreachable(f"no answer within {within:g} s (timeouts.call)", self.name) from None
            finally:
                CURRENT.set(None)
                if ticket is not None:
                    ticket.limiter.release(ticket, **outcome)
        return Timed(result, round(time.perf_counter() - began, 6), began - queued)

    async def close(self) -> None:
        """End what was connected, where it has an end."""
        close = getattr(self._connected, "close", None)
        if close is not None:
            await close()


QueuedModel = LazyService[Model]


class QueuedEmbedder(LazyService[Embedder]):
    @property
    def dimensions(self) -> int:
        """0 until it is connected, as for an embedder whose vectors nobody has seen yet."""
        return self._connected.dimensions if self._connected is not None else 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 rows of unit length, shape (len(texts), dimensions)."""
        return await Attempts().run(lambda: self.connect().embed(texts))
