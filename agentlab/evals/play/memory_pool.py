"""Memory of each trial of a run: an empty one, or for a question a snapshot of a filled one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path

from agentlab.core.constants import INGEST_FAILED
from agentlab.core.errors import MemoryUnavailable
from agentlab.core.messages import Fact, Reply, UserTurn
from agentlab.core.protocols import Memory
from agentlab.core.trace import Trace
from agentlab.data.memory_sets import MemorySession, MemoryTurn, Question, ingest_name
from agentlab.evals.play.plan import Stopped, Trial
from agentlab.evals.play.run_state import RunState
from agentlab.evals.store.rows import TrialKey
from agentlab.memory.unavailable import UnavailableMemory
from agentlab.session.session import Session
from agentlab.workbench.seat import Seat
from agentlab.workbench.turn_driver import TurnDriver, log_failure
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
_AGENTS = ("agent", "assistant")


class MemoryPool:
    """Opens the memory of each trial in `left`. The first question about a memory set fills its memory, and the last
    one closes it.
    """

    def __init__(self, bench: Workbench, state: RunState, left: Iterable[Trial]) -> None:
        self._bench = bench
        self._state = state
        self._questions_left = Counter(map(self._key, left))
        """Filled memory -> number of questions that still need it."""
        self._filled: dict[TrialKey, Memory] = {}
        self._filling: defaultdict[TrialKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: defaultdict[TrialKey, contextlib.AsyncExitStack] = defaultdict(contextlib.AsyncExitStack)

    @contextlib.asynccontextmanager
    async def memory(self, trial: Trial) -> AsyncIterator[tuple[Memory | None, Path | None]]:
        """Yield the trial's memory, and its folder if the data set supplies an initial memory.

        The memory is empty or a copy of the initial memory of the data set. For a question it is a snapshot of the
        filled memory. Raises Stopped if the budget is spent before the memory is filled.
        """
        key = self._key(trial)
        if key is None:
            initial = trial.dataset.initial_memories.get(trial.conversation.id)
            async with self._bench.memory(trial.variant, initial) as (memory, folder):
                yield memory, folder if initial is not None else None
            return
        async with self._filling[key]:
            if key not in self._filled:
                self._filled[key] = await self._fill(key, trial)
        try:
            snapshot = await self._filled[key].snapshot()
        except MemoryUnavailable as problem:
            snapshot = UnavailableMemory(str(trial.variant.memory), str(problem))
        try:
            yield snapshot, None
        finally:
            await snapshot.close()
            self._questions_left[key] -= 1
            if not self._questions_left[key]:
                await self._release(key)

    async def close(self) -> None:
        for key in list(self._open):
            await self._release(key)

    async def _release(self, key: TrialKey) -> None:
        was_filled = self._filled.pop(key, None) is not None
        await self._open.pop(key).aclose()
        if was_filled and self._bench.spec.ingest == "flow":
            self._state.finish_trial(key)

    def _key(self, trial: Trial) -> TrialKey | None:
        """Return the key of the filled memory that the trial needs; None if it needs none."""
        variant, question = trial.variant, trial.conversation
        if not isinstance(question, Question) or variant.memory is None:
            return None
        name = ingest_name(trial.dataset.name, question)
        by_flow = self._bench.spec.ingest == "flow"
        return (variant.label, name, trial.epoch) if by_flow else (str(variant.memory), name, 0)

    async def _fill(self, key: TrialKey, trial: Trial) -> Memory:
        variant, question = trial.variant, trial.conversation
        memory, _ = await self._open[key].enter_async_context(self._bench.memory(variant))
        assert memory is not None and isinstance(question, Question), "a key means a question and a memory"
        sessions = trial.dataset.memory_sessions[question.memory_of]
        if self._bench.spec.ingest == "flow":
            if self._state.budget.is_spent:
                raise Stopped
            await self._play(self._state.start_trial(key), variant, sessions, memory)
        else:
            try:
                facts = [
                    Fact(id=turn.id, text=f"{session.date}, {turn.speaker}: {turn.text}", created=session.date_time)
                    for session in sessions
                    for turn in session.turns
                ]
                await write_facts(self._bench, memory, facts)
            except MemoryUnavailable as problem:
                # The memory may come back, but it would be empty. So every question reports it as unavailable.
                log.warning("the facts could not be written to memory: %s", problem)
                return UnavailableMemory(str(variant.memory), str(problem))
        return memory

    async def _play(self, trace: Trace, variant: Variant, sessions: Sequence[MemorySession], memory: Memory) -> None:
        session = await self._bench.session(variant, Seat(trace=trace, memory=memory))
        driver = TurnDriver(session)
        number = 0
        for source in sessions:
            session.forget_history()
            for turn in source.turns:
                if self._state.budget.is_spent:
                    raise Stopped
                message = UserTurn(
                    text=f"{turn.speaker}: {turn.text}",
                    speaker_id=turn.speaker,
                    speaker_name=turn.speaker,
                    session=source.session_id,
                )
                result = await driver.play(partial(_ingest_turn, turn, variant), number, message, now=source.date_time)
                if result.failure is not None:
                    log_failure(session, result)
                    session.notify(INGEST_FAILED, str(result.error))
                await driver.finish_background()
                number += 1


async def write_facts(bench: Workbench, memory: Memory, facts: Sequence[Fact]) -> None:
    """Write facts to memory unchanged, with their ids and times."""
    texts, ids = [fact.text for fact in facts], iter([fact.id for fact in facts])
    vectors = await bench.embedder.embed(texts)
    await memory.ingest(texts, vectors, created=[fact.created for fact in facts], new_id=lambda: next(ids))


async def _ingest_turn(turn: MemoryTurn, variant: Variant, message: UserTurn, session: Session) -> Reply:
    """Run the flow's `write_memory` as a turn; an agent's message only enters the history."""
    # The name of the step is the id of the data set's turn.
    with session.step("told", turn.id):
        if turn.speaker.lower() in _AGENTS:
            session.save_message("agent", turn.text)
        else:
            # The preflight has rejected flows without this function.
            await variant.attribute("write_memory")(message, session)
    return Reply(text="")
