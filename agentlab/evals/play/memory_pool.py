"""The memory of each conversation of a run: fresh, or for a question a snapshot of what was told before."""

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
    """The memory of each conversation that is `left` to be played. What a memory set tells is written once, by whoever
    asks first, and let go after the last question."""

    def __init__(self, bench: Workbench, account: RunState, left: Iterable[Trial]) -> None:
        self._bench = bench
        self._account = account
        self._due = Counter(map(self._key, left))
        """Questions to come, by the memory they are asked against."""
        self._filled: dict[TrialKey, Memory] = {}
        self._filling: defaultdict[TrialKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: defaultdict[TrialKey, contextlib.AsyncExitStack] = defaultdict(contextlib.AsyncExitStack)

    @contextlib.asynccontextmanager
    async def memory(self, assigned: Trial) -> AsyncIterator[tuple[Memory | None, Path | None]]:
        """What the conversation has to itself: a fresh memory, the one that its data set says it begins with (and its
        folder, where flows keep more than facts), or for a question a snapshot of the filled one.

        Raises Stopped where filling it would cost more than is left.
        """
        key = self._key(assigned)
        if key is None:
            begins_with = assigned.dataset.initial_memories.get(assigned.conversation.id)
            async with self._bench.memory(assigned.variant, begins_with) as (memory, folder):
                yield memory, folder if begins_with is not None else None
            return
        async with self._filling[key]:
            if key not in self._filled:
                self._filled[key] = await self._fill(key, assigned)
        try:
            snapshot = await self._filled[key].snapshot()
        except MemoryUnavailable as gone:
            snapshot = UnavailableMemory(str(assigned.variant.memory), str(gone))
        try:
            yield snapshot, None
        finally:
            await snapshot.close()
            self._due[key] -= 1
            if not self._due[key]:
                await self._release(key)

    async def close(self) -> None:
        for key in list(self._open):
            await self._release(key)

    async def _release(self, key: TrialKey) -> None:
        was_filled = self._filled.pop(key, None) is not None
        await self._open.pop(key).aclose()
        if was_filled and self._bench.spec.ingest == "flow":
            self._account.finish_trial(key)

    def _key(self, assigned: Trial) -> TrialKey | None:
        """Which filled memory is asked; None where the conversation has one of its own, or none."""
        variant, question = assigned.variant, assigned.conversation
        if not isinstance(question, Question) or variant.memory is None:
            return None
        name = ingest_name(assigned.dataset.name, question)
        by_flow = self._bench.spec.ingest == "flow"
        return (variant.label, name, assigned.epoch) if by_flow else (str(variant.memory), name, 0)

    async def _fill(self, key: TrialKey, assigned: Trial) -> Memory:
        variant, question = assigned.variant, assigned.conversation
        memory, _ = await self._open[key].enter_async_context(self._bench.memory(variant))
        assert memory is not None and isinstance(question, Question), "as the key says"
        sessions = assigned.dataset.memory_sessions[question.memory_of]
        if self._bench.spec.ingest == "flow":
            if self._account.budget.is_spent:
                raise Stopped
            await self._play(self._account.start_trial(key), variant, sessions, memory)
        else:
            try:
                facts = [
                    Fact(id=turn.id, text=f"{session.date}, {turn.speaker}: {turn.text}", created=session.said_at)
                    for session in sessions
                    for turn in session.turns
                ]
                await write_facts(self._bench, memory, facts)
            except MemoryUnavailable as gone:
                # Should it come back, it is still empty: each question says that there is no memory, and is marked.
                log.warning("what was told could not be written to memory: %s", gone)
                return UnavailableMemory(str(variant.memory), str(gone))
        return memory

    async def _play(self, trace: Trace, variant: Variant, sessions: Sequence[MemorySession], memory: Memory) -> None:
        session = await self._bench.session(variant, Seat(trace=trace, memory=memory))
        driver = TurnDriver(session)
        number = 0
        for part in sessions:
            session.forget_history()
            for told in part.turns:
                if self._account.budget.is_spent:
                    raise Stopped
                asked = UserTurn(
                    text=f"{told.speaker}: {told.text}",
                    speaker_id=told.speaker,
                    speaker_name=told.speaker,
                    session=part.session_id,
                )
                played = await driver.play(partial(_ingest_turn, told, variant), number, asked, now=part.said_at)
                if played.failure is not None:
                    log_failure(session, played)
                    session.notify(INGEST_FAILED, str(played.error))
                await driver.finish_background()
                number += 1


async def write_facts(bench: Workbench, memory: Memory, facts: Sequence[Fact]) -> None:
    """Write facts to memory as they are, with their ids and times."""
    texts, ids = [fact.text for fact in facts], iter([fact.id for fact in facts])
    vectors = await bench.embedder.embed(texts)
    await memory.ingest(texts, vectors, created=[fact.created for fact in facts], new_id=lambda: next(ids))


async def _ingest_turn(told: MemoryTurn, variant: Variant, asked: UserTurn, session: Session) -> Reply:
    """The flow's step that writes to memory, as a turn; what an agent said only enters the history."""
    # The name of the step says which turn of the data set it was.
    with session.step("told", told.id):
        if told.speaker.lower() in _AGENTS:
            session.save_message("agent", told.text)
        else:
            await variant.says("write_memory")(asked, session)  # a flow without this step is refused before the run
    return Reply(text="")
