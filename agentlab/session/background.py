"""What a session does beside the reply: work side by side within a turn, and work between two turns."""

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
"""What a task must not raise: the event loop ends with it. Whoever is really interrupted is cancelled instead."""


class BackgroundWork(Traced):
    """Side by side with `parallel`; with `background` one piece after the other, once the reply is there."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._background: list[_BackgroundTask] = []
        self._current: tuple[_BackgroundTask, asyncio.Task[None]] | None = None
        self._pieces = 0

    def background(self, work: Coroutine[Any, Any, None], name: str, *, drop_on_reset: bool = False) -> None:
        """Do `work` once the reply is there: its calls are counted, but the reply's latency does not wait for them.

        It is done before the next turn begins, and dropped if it is `drop_on_reset`, for this conversation, and that is
        forgotten before. What it raises becomes a notice; the turn it began in stands.
        """
        self._background.append(_BackgroundTask(self._clock.scope, self._pieces, name, work, drop_on_reset))
        self._pieces += 1

    async def parallel(self, *work: Awaitable[T]) -> list[T]:
        """Run awaitables side by side; what comes next waits for all of them.

        If some fail, the others still come to their end, and the failure of the first in the order given is raised:
        which of them were under way at that moment would be a matter of speed.
        """

        begun_in = self._clock.scope

        async def tracked(number: int, inner: Awaitable[T]) -> tuple[T | None, BaseException | None, tuple[int, ...]]:
            self._clock.enter_branch(begun_in, number)
            try:
                return await inner, None, self._clock.scope.after
            except (Exception, *LOOP_ENDING_ERRORS) as failure:
                return None, failure, self._clock.scope.after

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(tracked(number, inner)) for number, inner in enumerate(work)]
        done = [task.result() for task in tasks]
        if done:
            self._clock.set_predecessors(tuple(sorted({event_id for _, _, after in done for event_id in after})))
        for _, failure, _ in done:
            if failure is not None:
                raise failure
        return [cast("T", result) for result, _, _ in done]

    async def run_background(self) -> None:
        """Do what was put into the background, piece by piece; called between turns."""
        while self._background:
            piece = self._background.pop(0)
            task = asyncio.create_task(self._run_task(piece))
            self._current = piece, task
            try:
                await task
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if not task.cancelled() or (me is not None and me.cancelling()):
                    raise
            finally:
                self._current = None

    def cancel_reset_scoped(self) -> None:
        """Forget the work that is for this conversation only, begun or not."""
        if self._current is not None and self._current[0].drop_on_reset:
            self._current[1].cancel()
        for piece in self._background:
            if piece.drop_on_reset:
                piece.work.close()
        self._background = [piece for piece in self._background if not piece.drop_on_reset]

    async def _run_task(self, piece: _BackgroundTask) -> None:
        self._clock.enter_background(piece.begun_in, piece.number)
        try:
            await piece.work
        except FATAL_ERRORS:
            raise
        except (Exception, *LOOP_ENDING_ERRORS) as failure:
            log.warning("background work %s failed", piece.name, exc_info=True)
            self.notify(BACKGROUND_FAILED, f"{piece.name}: {type(failure).__name__}: {failure}")


class _BackgroundTask(Struct, frozen=True, eq=False):
    """Background work that is still to be done, or under way."""

    begun_in: Scope
    number: int
    name: str
    work: Coroutine[Any, Any, None]
    drop_on_reset: bool
