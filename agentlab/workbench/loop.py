"""Event loop in its own thread, which scripts, the command line and notebooks use in the same way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentlab.core.errors import Terminated
from agentlab.core.gc_tuning import relax_gc

T = TypeVar("T")
ENDING_SECONDS = 10
"""Seconds that cancelled tasks get for cleanup."""


class Loop:
    """Event loop of a workbench's sessions; the first call of `submit` starts it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ended = weakref.WeakKeyDictionary[concurrent.futures.Future[Any], threading.Event]()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop; cancelling the future cancels the work."""
        with self._starting:
            # Two threads may submit first at the same time.
            loop = self._loop or self._start_loop()
        ended = threading.Event()

        async def work_and_report_end() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(work_and_report_end(), loop)
        self._ended[future] = ended
        return future

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result."""
        return self.result_of(self.submit(work))

    def result_of(self, future: concurrent.futures.Future[T]) -> T:
        """Wait for submitted work and return its result; an interrupt cancels the work and is raised again."""
        try:
            return future.result()
        except (KeyboardInterrupt, Terminated):
            self.cancel_and_wait(future)
            raise

    def cancel_and_wait(self, future: concurrent.futures.Future[Any]) -> None:
        """Cancel submitted work and wait at most ENDING_SECONDS for its end."""
        # A cancelled future is done at once, but its coroutine is not.
        future.cancel()
        self._ended[future].wait(ENDING_SECONDS)

    def end(self) -> None:
        """Cancel running tasks, wait for them and their threads, and end the loop."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ENDING_SECONDS)
        self._loop = self._thread = None

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        relax_gc()
        # With a loop_factory, the runner does not set the loop of the calling thread.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        loop = self._loop = runner.get_loop()

        def serve() -> None:
            # At its exit the runner cancels and awaits the remaining tasks.
            with runner:
                loop.run_forever()

        self._thread = threading.Thread(target=serve, name="agentlab", daemon=True)
        self._thread.start()
        return loop
