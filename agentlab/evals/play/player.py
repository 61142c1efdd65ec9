"""Play the conversations of a run or partition through every flow, `concurrency` of them at a time.

A turn that raises is a failed turn: it keeps its costs, scores 0 and is never dropped. Conversations are independent;
the turns of one conversation are played in order.

    fork = Fork(of="results/a", turn=2, source_variants={"tools": source_variant})

A fork replays the first turns of another run and plays the rest with another variant. The source variant answers the
first `turn` turns, from recordings only. Then the session switches to the new variant and keeps its history, memory and
counters.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agentlab.core.constants import MEMORY_UNAVAILABLE
from agentlab.core.errors import Retryable, RunError
from agentlab.core.events import Notice
from agentlab.core.files import is_disk_full
from agentlab.core.messages import Reply, ToolSpec, UserTurn
from agentlab.core.protocols import Memory
from agentlab.core.stream import StreamItem
from agentlab.core.trace import Trace
from agentlab.data.conversations import Turn
from agentlab.data.datasets import Dataset
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.play.memory_pool import MemoryPool, write_facts
from agentlab.evals.play.plan import WHOLE_RUN, Partition, RunObserver, Stopped, Trial, assignments, turns_of
from agentlab.evals.play.run_state import Played, RunState
from agentlab.evals.store.checksums import RESUME_HINT
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.progress import ProgressTracker, RunProgress
from agentlab.session.session import Session
from agentlab.tools.stub import StubTools
from agentlab.wire.offline import refuse_connections
from agentlab.wire.recorder import Recorder
from agentlab.workbench.seat import Seat
from agentlab.workbench.turn_driver import TurnDriver, TurnResult, log_failure
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Fork of the run in the folder `of`.

    `source_variants` maps a label of the new run to the variant that plays the first `turn` turns.
    """

    of: str
    turn: int
    source_variants: Mapping[str, Variant]

    @property
    def header(self) -> dict[str, Any]:
        flows = {label: variant.label for label, variant in self.source_variants.items()}
        return {"of": self.of, "turn": self.turn, "flows": flows}

    def recorder(self, bench: Workbench) -> Recorder:
        """Return the recorder of the first turns, which replays only."""
        return Recorder("replay", bench.recorder.recordings)

    async def switch(
        self, bench: Workbench, trial: Trial, session: Session, seat: Seat, opened: contextlib.AsyncExitStack
    ) -> Callable[[UserTurn, Session], Awaitable[Reply]]:
        """Switch the session to the new variant, and return its `respond`.

        `seat` belongs to the first turns. `opened` closes the resources of the new variant.
        """
        memory = await self._memory(bench, trial, session, opened)
        index = await bench.index(trial.dataset.documents, trial.variant.retrieval)
        new_seat = replace(seat, index=index, memory=memory, recorder=None)
        session.switch_to(await bench.session(trial.variant, new_seat))
        return trial.variant.respond

    async def _memory(
        self, bench: Workbench, trial: Trial, session: Session, opened: contextlib.AsyncExitStack
    ) -> Memory | None:
        """Return the session's memory; copy its facts if the new variant has another backend."""
        before, after = self.source_variants[trial.variant.label].memory, trial.variant.memory
        if before == after or after is None:
            return session.memory if after is not None else None
        memory, _ = await opened.enter_async_context(bench.memory(trial.variant))
        facts = await session.memory.facts() if session.memory is not None else ()
        if facts and memory is not None:
            await write_facts(bench, memory, facts)
        return memory


log = logging.getLogger(__name__)
MAX_CONSECUTIVE_UNREACHABLE = 10
"""Failed turns in a row after which the model counts as down and the run stops."""


class Player:
    """Plays the conversations of a run, or of `partition` alone."""

    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        on_event: Callable[[Trace, StreamItem], None] | None = None,
        *,
        partition: Partition = WHOLE_RUN,
        fork: Fork | None = None,
        observer: RunObserver | None = None,
        keep_failures: bool = False,
    ) -> None:
        """With `observer`, conversations are played in the observer's order, until it stops the run."""
        self._bench = bench
        self._folder = folder
        self._fork = fork
        self._on_event = on_event
        planned = assignments(bench, datasets, partition, observer.order if observer else ())
        self._state = RunState(bench, datasets, planned, folder, observer, keep_failures=keep_failures)
        self._remaining = [*self._state.left.values()]
        self._memories = MemoryPool(bench, self._state, map(self._first, self._remaining))
        self._tracker = ProgressTracker(turns_of(self._remaining), on_progress)
        self._consecutive_unreachable = 0
        """Turns in a row, over all conversations, that failed because the model was unreachable."""

    async def play(self) -> Played:
        """Play the remaining trials, until all have ended or the observer stops the run."""
        state = self._state
        await state.resume(fingerprints(self._bench.scorers, self._bench.embedder.name))
        await self._prepare()
        self._tracker.begin()
        trials = iter(self._remaining)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._bench.spec.concurrency):
                    group.create_task(self._work(trials))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await self._memories.close()
            self._folder.flush()
        return state.close({name: limits.summary() for name, limits in self._bench.limits().items()})

    async def _prepare(self) -> None:
        """Start models and build indexes."""
        for trial in {(each.dataset.name, each.variant.label): each for each in self._remaining}.values():
            await self._bench.model(trial.variant.model)
            await self._bench.index(trial.dataset.documents, trial.variant.retrieval, self._tracker.report_indexing)

    async def _work(self, trials: Iterator[Trial]) -> None:
        for trial in trials:
            if self._state.follower.should_stop or self._state.budget.is_spent or self._is_down:
                return
            try:
                with refuse_connections() if self._bench.spec.mode == "replay" else contextlib.nullcontext():
                    await self._play(trial)
            except Stopped:
                return

    def _first(self, trial: Trial) -> Trial:
        """Return the trial with the variant that plays its first turns."""
        return trial if self._fork is None else replace(trial, variant=self._fork.source_variants[trial.variant.label])

    async def _play(self, trial: Trial) -> None:
        conversation, first = trial.conversation, self._first(trial)
        stub = StubTools(
            [ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in conversation.tools]
        )
        today = conversation.metadata.get("today")
        earlier = self._state.earlier_answers(trial, await self._bench.model(first.variant.model))
        recorder = None if self._bench.spec.mode != "live" else earlier
        async with contextlib.AsyncExitStack() as opened:
            memory, folder = await opened.enter_async_context(self._memories.memory(first))
            seat = Seat(
                index=await self._bench.index(trial.dataset.documents, first.variant.retrieval),
                trace=self._state.start_trial(trial.key),
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
            session_id: str | None = None
            now: datetime | None = None
            for number, turn in enumerate(conversation.turns):
                if self._fork is not None and number == self._fork.turn:
                    respond = await self._fork.switch(self._bench, trial, session, seat, opened)
                if number > 0:
                    if self._state.follower.should_stop or self._state.budget.is_overdrawn:
                        raise Stopped
                    if turn.session != session_id:
                        session.forget_history()
                session_id = turn.session
                now = _time_of(turn) or now
                if not turn.scored:
                    session.add_history_turn(turn.user, turn.reference_answers[0] if turn.reference_answers else None)
                    continue
                stub.begin_turn([result.model_dump() for result in turn.tool_results])
                outcome = await driver.play(respond, number, _message(turn), now=now)
                await driver.finish_background()
                await self._end_turn(trial, session, outcome)
        self._state.finish_trial(trial.key)

    async def _end_turn(self, trial: Trial, session: Session, result: TurnResult) -> None:
        _check_disk(session, result)
        self._consecutive_unreachable = (
            self._consecutive_unreachable + 1 if isinstance(result.failure, Retryable) else 0
        )
        if self._consecutive_unreachable == MAX_CONSECUTIVE_UNREACHABLE:
            log.warning(
                "%d turns in a row failed, the last with: %s; the run stops here and can be resumed",
                *(self._consecutive_unreachable, result.error),
            )
        if self._is_down:
            raise Stopped
        if result.failure is not None:
            log_failure(session, result)
        await self._state.record_turn(trial, session.trace, result)
        self._tracker.turn_done(result.failure is not None, f"{trial.key[0]} · {trial.key[1]}")
        await self._tracker.yield_to_loop()

    @property
    def _is_down(self) -> bool:
        return self._consecutive_unreachable >= MAX_CONSECUTIVE_UNREACHABLE


def _time_of(turn: Turn) -> datetime | None:
    """Return the time of a turn according to its data set; None if unknown."""
    if turn.scored and (now := turn.metadata.get("now")):
        return datetime.fromisoformat(now)
    with contextlib.suppress(ValueError):  # not every session id is a date
        return datetime.fromisoformat(turn.session or "")
    return None


def _message(turn: Turn) -> UserTurn:
    speaker = turn.speaker
    return UserTurn(
        text=turn.user,
        speaker_id=speaker.id if speaker else None,
        speaker_name=speaker.name if speaker else None,
        session=turn.session,
    )


def _check_disk(session: Session, result: TurnResult) -> None:
    """Raise RunError if a full disk made the turn or its memory fail."""
    if result.failure is None and session.memory is None:
        return
    events = session.trace.at(result.number)
    unavailable = [e.text for e in events if isinstance(e, Notice) and e.name == MEMORY_UNAVAILABLE]
    for why in (result.failure, *unavailable):
        if is_disk_full(why):
            raise RunError(f"the disk is full: {why}; {RESUME_HINT}")
