"""The memory of each conversation of a run: fresh, or for a question a snapshot of what was told before."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.messages import UserTurn
from agentlab.core.names import INGEST_FAILED
from agentlab.core.protocols import Memory
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset
from agentlab.data.memory_sets import Question, ToldSession, ingest_name
from agentlab.evals.run.folder import Play
from agentlab.memory.unavailable import Away

if TYPE_CHECKING:
    from agentlab.lab.lab import Lab
    from agentlab.workbench.variants import Variant

log = logging.getLogger(__name__)
_AGENTS = ("agent", "assistant")


def check_memory(variants: Sequence[Variant], dataset: Dataset, ingest: str) -> None:
    """Raise ConfigError where no flow can be asked about what was told before.

    Beside one that can, a flow without a memory shows what is answered without one.
    """
    if not dataset.told:
        return
    remembering = [variant for variant in variants if variant.memory is not None]
    if not remembering:
        raise ConfigError(
            f"no flow of this run has a long-term memory, and {dataset.name!r} asks for what was told before"
        )
    for variant in remembering:
        if ingest == "flow" and variant.write_memory is None:
            raise ConfigError(
                f"flow {variant.label!r} has no step that writes to memory (`write_memory`); use ingest: verbatim"
            )


class BudgetSpent(Exception):
    """A memory could not be filled for what the budget holds."""


class Memories:
    """The memory of each conversation of a run. What a memory set tells is written once, by whoever asks first.

    `begin` opens the trace of a flow that fills its memory, `over_budget` says whether it may go on.
    """

    def __init__(self, lab: Lab, begin: Callable[[Play], Trace], over_budget: Callable[[], bool]) -> None:
        self._lab = lab
        self._begin = begin
        self._over_budget = over_budget
        self._due: Counter[Play] = Counter()
        """Questions to come, by the memory they are asked against."""
        self._filled: dict[Play, Memory] = {}
        self._filling: defaultdict[Play, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: defaultdict[Play, contextlib.AsyncExitStack] = defaultdict(contextlib.AsyncExitStack)

    def expect(self, variant: Variant, dataset: Dataset, conversation: Conversation, epoch: int) -> None:
        """Say before the first `memory` what will be asked for, so that a memory is let go after its last question."""
        if isinstance(conversation, Question) and variant.memory is not None:
            self._due[self._key(variant, dataset, conversation, epoch)] += 1

    @contextlib.asynccontextmanager
    async def memory(
        self, variant: Variant, dataset: Dataset, conversation: Conversation, epoch: int
    ) -> AsyncIterator[Memory | None]:
        """What the conversation has to itself: a fresh memory, or for a question a snapshot of the filled one.

        Raises BudgetSpent where filling it would cost more than is left.
        """
        if not isinstance(conversation, Question) or variant.memory is None:
            async with self._lab.memory(variant) as memory:
                yield memory
            return
        key = self._key(variant, dataset, conversation, epoch)
        async with self._filling[key]:
            if key not in self._filled:
                self._filled[key] = await self._fill(key, variant, dataset, conversation.memory_of)
        try:
            snapshot = await self._filled[key].snapshot()
        except MemoryUnavailable as gone:
            snapshot = Away(str(variant.memory), str(gone))
        try:
            yield snapshot
        finally:
            await snapshot.close()
            self._due[key] -= 1
            if not self._due[key]:
                await self._let_go(key)

    async def close(self) -> None:
        for key in list(self._open):
            await self._let_go(key)

    async def _let_go(self, key: Play) -> None:
        self._filled.pop(key, None)
        await self._open.pop(key).aclose()

    def _key(self, variant: Variant, dataset: Dataset, question: Question, epoch: int) -> Play:
        if self._lab.spec.ingest == "flow":
            return variant.label, ingest_name(dataset.name, question), epoch
        return str(variant.memory), ingest_name(dataset.name, question), 0

    async def _fill(self, key: Play, variant: Variant, dataset: Dataset, memory_of: str) -> Memory:
        memory = await self._open[key].enter_async_context(self._lab.memory(variant))
        assert memory is not None, "a flow without a memory is refused before the run"
        sessions = dataset.told[memory_of]
        if self._lab.spec.ingest == "flow":
            if self._over_budget():
                raise BudgetSpent
            await self._play(self._begin(key), variant, sessions, memory)
        else:
            try:
                await self._write_down(sessions, memory)
            except MemoryUnavailable as gone:
                # Should it come back, it is still empty: each question says that there is no memory, and is marked.
                log.warning("what was told could not be written to memory: %s", gone)
                return Away(str(variant.memory), str(gone))
        return memory

    async def _write_down(self, sessions: Sequence[ToldSession], memory: Memory) -> None:
        said = [(session, turn) for session in sessions for turn in session.turns]
        texts = [f"{session.date}, {turn.speaker}: {turn.text}" for session, turn in said]
        vectors = await self._lab.embedder.embed(texts)
        ids = iter([turn.id for _, turn in said])
        moments = [session.moment for session, _ in said]
        await memory.ingest(texts, vectors, created=moments, new_id=lambda: next(ids))

    async def _play(self, trace: Trace, variant: Variant, sessions: Sequence[ToldSession], memory: Memory) -> None:
        assert variant.write_memory is not None, "a flow without this step is refused before the run"
        session = await self._lab.session(variant, trace, index=None, memory=memory)
        number = 0
        for told in sessions:
            session.forget_history()
            session.now = told.moment
            for turn in told.turns:
                if self._over_budget():
                    raise BudgetSpent
                session.begin_turn(number)
                number += 1
                # The name of the step says which turn of the data set it was.
                with session.step("told", turn.id):
                    if turn.speaker.lower() in _AGENTS:
                        session.save_message("agent", turn.text)
                        continue
                    text = f"{turn.speaker}: {turn.text}"
                    asked = UserTurn(
                        text=text, speaker_id=turn.speaker, speaker_name=turn.speaker, session=told.session_id
                    )
                    try:
                        await variant.write_memory(asked, session)
                    except Exception as failure:
                        log.warning("%s/%s turn %d failed", trace.flow, trace.conversation, number, exc_info=True)
                        session.notify(INGEST_FAILED, f"{type(failure).__name__}: {failure}")
                await session.join()
