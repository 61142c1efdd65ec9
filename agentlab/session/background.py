"""Parallel work within a turn, and background tasks after the reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from msgspec import Struct

from agentlab.core.constants import BACKGROUND_FAILED
from agentlab.core.errors import FATAL_ERRORS
from agentlab.session.clock import Scope
from agentlab.session.traced import Traced

T = TypeVar("T")
log = logging.getLogger(__name__)
LOOP_ENDING_ERRORS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions that end the event loop, so tasks must not raise them. Real interrupts arrive as cancellation."""


class BackgroundWork(Traced):
    """Verbs `parallel` (concurrent work) and `background` (tasks after the reply, one at a time)."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._background: list[_BackgroundTask] = []
        self._current: tuple[_BackgroundTask, asyncio.Task[None]] | None = None
        self._task_count = 0

    def background(self, work: Coroutine[Any, Any, None], name: str, *, drop_on_reset: bool = False) -> None:
        """Run `work` after the reply: its calls are counted, but not in the latency of the reply.

        It ends before the next turn starts. With `drop_on_reset` it is cancelled when the history is forgotten. An
        error becomes a notice and does not fail the turn.
        """
        self._background.append(_BackgroundTask(self._clock.scope, self._task_count, name, work, drop_on_reset))
        self._task_count += 1

    async def parallel(self, *work: Awaitable[T]) -> list[T]:
        """Run awaitables concurrently and return their results in order; later events wait for all of them.

        If some fail, the others still finish. Then the first failure in the given order is raised, so that the trace
        does not depend on speed.
        """

        started_in = self._clock.scope

        async def tracked(number: int, inner: Awaitable[T]) -> tuple[T | None, BaseException | None, tuple[int, ...]]:
            self._clock.scope = started_in._replace(path=(*started_in.path, number))
            try:
                return await inner, None, self._clock.scope.after
            except (Exception, *LOOP_ENDING_ERRORS) as failure:
                return None, failure, self._clock.scope.after

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(tracked(number, inner)) for number, inner in enumerate(work)]
        done = [task.result() for task in tasks]
        if done:
            predecessors = tuple(sorted({event_id for _, _, after in done for event_id in after}))
            self._clock.scope = self._clock.scope._replace(after=predecessors)
        for _, failure, _ in done:
            if failure is not None:
                raise failure
        return [cast("T", result) for result, _, _ in done]

    async def run_background(self) -> None:
        """Run the waiting background tasks one at a time; called between turns."""
        while self._background:
            queued = self._background.pop(0)
            task = asyncio.create_task(self._run_task(queued))
            self._current = queued, task
            try:
                await task
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if not task.cancelled() or (me is not None and me.cancelling()):
                    raise
            finally:
                self._current = None

    def cancel_reset_scoped(self) -> None:
        """Cancel the tasks with `drop_on_reset`, running or waiting."""
        if self._current is not None and self._current[0].drop_on_reset:
            self._current[1].cancel()
        for queued in self._background:
            if queued.drop_on_reset:
                queued.work.close()
        self._background = [queued for queued in self._background if not queued.drop_on_reset]

    async def _run_task(self, queued: _BackgroundTask) -> None:
        # Its events have no parent, and no event waits for them.
        path = (*queued.started_in.path, -1 - queued.number)
        self._clock.scope = queued.started_in._replace(parent=None, background=True, path=path)
        try:
            await queued.work
        except FATAL_ERRORS:
            raise
        except (Exception, *LOOP_ENDING_ERRORS) as failure:
            log.warning("background work %s failed", queued.name, exc_info=True)
            self.notify(BACKGROUND_FAILED, f"{queued.name}: {type(failure).__name__}: {failure}")


class _BackgroundTask(Struct, frozen=True, eq=False):
    """Waiting or running background task."""

    started_in: Scope
    number: int
    name: str
    work: Coroutine[Any, Any, None]
    drop_on_reset: bool
