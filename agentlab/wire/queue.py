"""Models and embedders behind their queues: connected at the first call, with queueing and work timed separately.

A model that serves one request at a time would make parallel conversations look slow. So the time in its queue is
stored as `waited` and not in `seconds`. Equal requests in flight are one call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentlab.core.errors import ConfigError, ModelUnavailable, RateLimited, Unreachable
from agentlab.core.protocols import CallResult, Embedder, Model
from agentlab.wire.limits import CURRENT, RateLimiter
from agentlab.wire.retries import Attempts

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
C = TypeVar("C")


class SingleFlight:
    """Merges equal calls in flight: the first caller of a key does the work, later callers wait for its result.

    async with single_flight.join(key) as flight:
        if not (joined := flight.done()):
            flight.set_result(await work())
    result = flight.result()
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, asyncio.Future[Any]] = {}

    @contextlib.asynccontextmanager
    async def join(self, key: str) -> AsyncIterator[asyncio.Future[Any]]:
        """Yield the result of an equal call once that has ended, else a future that the block has to fulfil.

        If the first caller is cancelled, one of the waiting callers does the work.
        """
        while (other := self._in_flight.get(key)) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                yield other
                return
        flight = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            yield flight
        except Exception as failure:
            flight.set_exception(failure)
            flight.exception()  # mark it as retrieved: it is raised here, and maybe no one else waits
            raise
        finally:
            flight.cancel()  # does nothing if it has a result
            del self._in_flight[key]


@dataclass(eq=False)
class LazyService(Generic[C]):
    """Model or an embedder with its queue; it is connected and started at the first call."""

    name: str
    """Its name in results."""
    endpoint: str
    """Kind of server and settings of the provider; part of the key of each call."""
    factory: Callable[[], C]
    limiter: RateLimiter | None = None
    """From the spec, or made here for a provider with rate limits."""
    process_count: int = 1
    """Known processes with the same API keys, including this one."""
    _connected: C | None = field(default=None, init=False)
    _slots: contextlib.AbstractAsyncContextManager[object] = field(default_factory=contextlib.nullcontext, init=False)
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _started: bool = field(default=False, init=False)

    def connect(self) -> C:
        """Return the model or embedder; raises ModelUnavailable if it cannot be connected."""
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
        """Start the model or embedder once; the time is not part of any latency."""
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
    ) -> CallResult[T]:
        """Wait until `flow` may call, then return the timed result of `work` on the model or embedder.

        `mark_sent` is called when the work starts. Raises Unreachable after `within` seconds of work.
        """
        if not self._started:
            await self.start()
        queued = time.perf_counter()
        outcome: dict[str, Any] = {}
        async with self._slots:
            ticket = await self.limiter.acquire(flow, tokens) if self.limiter is not None else None
            CURRENT.set(ticket)
            mark_sent()
            started = time.perf_counter()
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
                raise Unreachable(f"no response within {within:g} s (timeouts.call)", self.name) from None
            finally:
                CURRENT.set(None)
                if ticket is not None:
                    ticket.limiter.release(ticket, **outcome)
        return CallResult(value=result, seconds=round(time.perf_counter() - started, 6), waited=started - queued)

    async def close(self) -> None:
        """Close the model or embedder if it is connected."""
        close = getattr(self._connected, "close", None)
        if close is not None:
            await close()


QueuedModel = LazyService[Model]


class QueuedEmbedder(LazyService[Embedder]):
    @property
    def dimensions(self) -> int:
        """Number of dimensions; 0 until it is connected."""
        return self._connected.dimensions if self._connected is not None else 0

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 rows of unit length, shape (len(texts), dimensions)."""
        return await Attempts().run(lambda: self.connect().embed(texts))
