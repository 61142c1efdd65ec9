"""An event loop in a thread of its own, so that scripts, the command line and notebooks share one way in."""

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
"""How long what was cancelled may take to put its things in order."""


class Loop:
    """Where the sessions of a bench live; started when it is first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._ended = weakref.WeakKeyDictionary[concurrent.futures.Future[Any], threading.Event]()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run `work` on the loop; cancelling the future cancels the work."""
        with self._beginning:
            # Two threads may be the first.
            loop = self._loop or self._start_loop()
        ended = threading.Event()

        async def followed() -> T:
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(followed(), loop)
        self._ended[future] = ended
        return future

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it."""
        return self.result_of(self.submit(work))

    def result_of(self, future: concurrent.futures.Future[T]) -> T:
        """The result of work that was started; an interrupt ends the work before it is raised again."""
        try:
            return future.result()
        except (KeyboardInterrupt, Terminated):
            self.cancel_and_wait(future)
            raise

    def cancel_and_wait(self, future: concurrent.futures.Future[Any]) -> None:
        """End work that was started, and wait for its end."""
        # A cancelled future is done at once, what runs behind it is not.
        future.cancel()
        self._ended[future].wait(ENDING_SECONDS)

    def end(self) -> None:
        """Cancel what is still under way, wait for it and for its threads, and end the loop."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ENDING_SECONDS)
        self._loop = self._thread = None

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        relax_gc()
        # The loop is not to become that of the calling thread.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        loop = self._loop = runner.get_loop()

        def serve() -> None:
            # What is left when the loop stops, asyncio.Runner cancels and awaits.
            with runner:
                loop.run_forever()

        self._thread = threading.Thread(target=serve, name="agentlab", daemon=True)
        self._thread.start()
        return loop
