"""Threads that grade: each takes all that waits, one after the other, and hands back what is done in few steps.

To wake a thread and to be woken by it costs more than to grade a short reply, so what was quick the last time and waits
for nothing is done where it is asked for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")
MOST = 2
"""Threads."""
CROWD = 16
"""From so many that wait on, another thread helps; where grading is slow, as soon as one waits."""
SLOW_SECONDS = 0.02
QUICK_SECONDS = 0.002
"""What is done sooner keeps nobody waiting who shares the loop."""
SECONDS_BETWEEN_RETURNS = 0.005


class GradingThreads(Generic[T]):
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MOST, thread_name_prefix="grading")
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], T], asyncio.Future[T]]] = deque()
        self._busy = 0
        """Threads that take what waits."""
        self._is_slow = False
        self._is_quick = False
        """Of the last work: by the clock on the wall, and by what it computed itself."""

    async def run(self, work: Callable[[], T], *, only_computes: bool = False) -> T:
        """What `work` returns or raises in one of the threads; it is left out where nobody waits for it any more.

        Work that `only_computes` is done here and now for as long as it is quick.
        """
        if only_computes and self._is_quick:
            return self._timed(work)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._waiting.append((work, future))
            crowd = 1 if self._is_slow else CROWD
            starts = self._busy == 0 or (self._busy < MOST and len(self._waiting) >= crowd)
            self._busy += starts
        if starts:
            self._pool.submit(self._take_all, loop)
        return await future

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, work: Callable[[], T]) -> T:
        began, computed = time.monotonic(), time.thread_time()
        try:
            return work()
        finally:
            self._is_slow = time.monotonic() - began > SLOW_SECONDS
            self._is_quick = time.thread_time() - computed <= QUICK_SECONDS

    def _take_all(self, loop: asyncio.AbstractEventLoop) -> None:
        done: list[tuple[asyncio.Future[T], Any, BaseException | None]] = []
        returned = time.monotonic()
        while True:
            with self._lock:
                taken = self._waiting.popleft() if self._waiting else None
                self._busy -= taken is None
            if taken is not None:
                work, future = taken
                if future.cancelled():
                    continue
                try:
                    done.append((future, self._timed(work), None))
                except BaseException as failure:
                    done.append((future, None, failure))
            now = time.monotonic()
            if done and (taken is None or now - returned >= SECONDS_BETWEEN_RETURNS):
                try:
                    loop.call_soon_threadsafe(_hand_back, done)
                except RuntimeError:
                    return  # the loop is closed: nobody waits
                done, returned = [], now
            if taken is None:
                return


def _hand_back(done: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, result, failure in done:
        if future.cancelled():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
