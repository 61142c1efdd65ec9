"""Plays the conversations of a run, or a share of them, through every flow, as many at a time as the spec says.

A turn that raises is a failed turn: it keeps what it cost, scores 0 and is never dropped. Conversations are independent
of each other; the turns of one come in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from agentlab.core.constants import MEMORY_UNAVAILABLE
from agentlab.core.errors import Retryable, RunError
from agentlab.core.events import Notice
from agentlab.core.files import is_disk_full
from agentlab.core.messages import ToolSpec, UserTurn
from agentlab.core.stream import StreamItem
from agentlab.core.trace import Trace
from agentlab.data.conversations import Turn
from agentlab.data.datasets import Dataset
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.play.fork import Fork
from agentlab.evals.play.memory_pool import MemoryPool
from agentlab.evals.play.observer import RunObserver
from agentlab.evals.play.plan import WHOLE_RUN, Partition, Stopped, Trial, assignments, turns_of
from agentlab.evals.play.run_state import Played, RunState
from agentlab.evals.store.atomic_folder import RESUME_HINT
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.progress import ProgressTracker, RunProgress
from agentlab.session.session import Session
from agentlab.tools.stub import StubTools
from agentlab.workbench.seat import Seat
from agentlab.workbench.turn_driver import TurnDriver, TurnResult, log_failure
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
MAX_CONSECUTIVE_UNREACHABLE = 10
"""A model that was asked in vain for so many turns is down: going on would only make failed turns of the others."""


class Player:
    """The conversations of a run, or those of `share`, as they are being played."""

    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        on_event: Callable[[Trace, StreamItem], None] | None = None,
        *,
        share: Partition = WHOLE_RUN,
        fork: Fork | None = None,
        watch: RunObserver | None = None,
        keep_failures: bool = False,
    ) -> None:
        """With `watch` the conversations are played in its order, until it says that the run may stop."""
        self._bench = bench
        self._folder = folder
        self._fork = fork
        self._on_event = on_event
        planned = assignments(bench, datasets, share, watch.order if watch else ())
        self._account = RunState(bench, datasets, planned, folder, watch, keep_failures=keep_failures)
        self._remaining = [*self._account.left.values()]
        self._memories = MemoryPool(bench, self._account, map(self._first, self._remaining))
        self._pace = ProgressTracker(turns_of(self._remaining), on_progress)
        self._consecutive_unreachable = 0
        """Turns in a row, of whatever conversation, that failed because the model could not be reached."""

    async def play(self) -> Played:
        """Play what is left, until the watch, if there is one, says that the run may stop."""
        account = self._account
        await account.resume(fingerprints(self._bench.scorers, self._bench.embedder.name))
        await self._prepare()
        self._pace.begin()
        waiting = iter(self._remaining)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._bench.spec.concurrency):
                    group.create_task(self._work(waiting))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await self._memories.close()
            self._folder.flush()
        return account.close({name: limits.summary() for name, limits in self._bench.limits().items()})

    async def _prepare(self) -> None:
        """Start models and build indexes."""
        for play in {(each.dataset.name, each.variant.label): each for each in self._remaining}.values():
            await self._bench.model(play.variant.model)
            await self._bench.index(play.dataset.documents, play.variant.retrieval, self._pace.report_indexing)

    async def _work(self, waiting: Iterator[Trial]) -> None:
        for play in waiting:
            if self._account.follower.should_stop or self._account.budget.is_spent or self._is_down:
                return
            try:
                await self._play(play)
            except Stopped:
                return

    def _first(self, play: Trial) -> Trial:
        """Who plays the first turns of it."""
        return play if self._fork is None else replace(play, variant=self._fork.source_variants[play.variant.label])

    async def _play(self, play: Trial) -> None:
        conversation, first = play.conversation, self._first(play)
        stub = StubTools(
            [ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in conversation.tools]
        )
        today = conversation.metadata.get("today")
        earlier = self._account.earlier_answers(play, await self._bench.model(first.variant.model))
        recorder = None if self._bench.spec.mode != "live" else earlier
        async with contextlib.AsyncExitStack() as opened:
            memory, folder = await opened.enter_async_context(self._memories.memory(first))
            seat = Seat(
                index=await self._bench.index(play.dataset.documents, first.variant.retrieval),
                trace=self._account.start_trial(play.key),
                tools=stub.tools,
                memory=memory,
                folder=folder,
                now=datetime.fromisoformat(today) if today else None,
                recorder=recorder if self._fork is None else self._fork.recorder(self._bench),
            )
            session = await self._bench.session(first.variant, seat)
            if self._on_event is not None:
                session.stream.on("*", functools.partial(self._on_event, session.trace))
            driver = TurnDriver(session)
            respond = first.variant.respond
            part: str | None = None
            now: datetime | None = None
            for number, turn in enumerate(conversation.turns):
                if self._fork is not None and number == self._fork.turn:
                    respond = await self._fork.switch(self._bench, play, session, seat, opened)
                if number > 0:
                    if self._account.follower.should_stop or self._account.budget.is_overdrawn:
                        raise Stopped
                    if turn.session != part:
                        session.forget_history()
                part = turn.session
                now = _moment(turn) or now
                if not turn.scored:
                    session.add_history_turn(turn.user, turn.reference_answers[0] if turn.reference_answers else None)
                    continue
                stub.begin_turn([result.model_dump() for result in turn.tool_results])
                played = await driver.play(respond, number, _asked(turn), now=now)
                await driver.finish_background()
                await self._ended(play, session, played)
        self._account.finish_trial(play.key)

    async def _ended(self, play: Trial, session: Session, played: TurnResult) -> None:
        _check_disk(session, played)
        self._consecutive_unreachable = (
            self._consecutive_unreachable + 1 if isinstance(played.failure, Retryable) else 0
        )
        if self._consecutive_unreachable == MAX_CONSECUTIVE_UNREACHABLE:
            log.warning(
                "%d turns in a row failed, the last with: %s; the run stops here and can be resumed",
                *(self._consecutive_unreachable, played.error),
            )
        if self._is_down:
            raise Stopped
        if played.failure is not None:
            log_failure(session, played)
        await self._account.record_turn(play, session.trace, played)
        self._pace.turn_done(played.failure is not None, f"{play.key[0]} · {play.key[1]}")
        await self._pace.yield_to_loop()

    @property
    def _is_down(self) -> bool:
        return self._consecutive_unreachable >= MAX_CONSECUTIVE_UNREACHABLE


def _moment(turn: Turn) -> datetime | None:
    """When the conversation says that a turn takes place."""
    if turn.scored and (moment := turn.metadata.get("now")):
        return datetime.fromisoformat(moment)
    with contextlib.suppress(ValueError):  # not every session is named by its date
        return datetime.fromisoformat(turn.session or "")
    return None


def _asked(turn: Turn) -> UserTurn:
    speaker = turn.speaker
    return UserTurn(
        text=turn.user,
        speaker_id=speaker.id if speaker else None,
        speaker_name=speaker.name if speaker else None,
        session=turn.session,
    )


def _check_disk(session: Session, played: TurnResult) -> None:
    """Raise RunError where the turn, or its memory, came to nothing only because a disk is full."""
    if played.failure is None and session.memory is None:
        return
    events = session.trace.of_turn(played.number)
    away = [e.text for e in events if isinstance(e, Notice) and e.name == MEMORY_UNAVAILABLE]
    for why in (played.failure, *away):
        if is_disk_full(why):
            raise RunError(f"there is no room on the disk: {why}; {RESUME_HINT}")
