"""Session's verbs on long-term memory: recall, remember, revise."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agentlab.core.constants import MEMORY_UNAVAILABLE
from agentlab.core.errors import MemoryUnavailable, ModelError
from agentlab.core.events import MemoryOp, Phase
from agentlab.core.messages import AddResult, Fact
from agentlab.core.protocols import DUPLICATE_THRESHOLD, Memory
from agentlab.session.traced import Traced


class MemoryVerbs(Traced):
    """Verbs on memory; without a memory they do nothing and write no event."""

    _last_fact: tuple[str, int] = ("", 0)

    async def recall(
        self, text: str, *, top_k: int = 3, min_score: float | None = None, phase: Phase = "memory_read"
    ) -> tuple[Fact, ...]:
        """Return the facts nearest to `text`, nearest first; () without a memory.

        `min_score` is the minimum cosine similarity; None: the session's `memory_min_score`. Each verb on memory makes
        one embedding call and one memory operation, and raises MemoryUnavailable.
        """
        if self.memory is None:
            return ()
        async with self._operation(self.memory, "recall", text, phase) as (vector, facts):
            threshold = self.has.memory_min_score if min_score is None else min_score
            facts["facts"] = await self.memory.search(text, vector, top_k=top_k, min_score=threshold)
        return tuple(facts["facts"])

    async def remember(
        self, text: str, *, phase: Phase = "memory_write", duplicate_threshold: float | None = DUPLICATE_THRESHOLD
    ) -> AddResult | None:
        """Store `text` in memory, unless a stored fact is too similar; returns None without a memory.

        `duplicate_threshold` is the cosine similarity from which a fact counts as a duplicate; None: always store.
        """
        if self.memory is None:
            return None
        async with self._operation(self.memory, "remember", text, phase) as (vector, facts):
            added = await self.memory.add(
                text,
                vector,
                created=self.now,
                new_id=self._new_fact,
                duplicate_threshold=duplicate_threshold,
                about=self.speaker,
            )
            facts["facts"], facts["written"] = (added.fact,), added.is_new
        return added

    async def revise(self, fact_id: str, text: str, *, phase: Phase = "memory_write") -> Fact | None:
        """Replace a fact by `text` under a new id; returns None without such a fact or without a memory."""
        if self.memory is None:
            return None
        async with self._operation(self.memory, "revise", text, phase, replaces=fact_id) as (vector, facts):
            fact = await self.memory.update(fact_id, text, vector, created=self.now, new_id=self._new_fact)
            facts["facts"], facts["written"] = (() if fact is None else (fact,)), fact is not None
        return fact

    @contextlib.contextmanager
    def continue_without_memory(self) -> Iterator[None]:
        """End this block if the memory is unavailable, and send a notice."""
        try:
            yield
        except MemoryUnavailable as problem:
            self.notify(MEMORY_UNAVAILABLE, str(problem))

    def _new_fact(self) -> str:
        """Return a new id, made of the time and a number, so that no later chat reuses the id of a deleted fact.

        A resumed conversation gives the same ids as its replay without an interruption.
        """
        moment = self.now.isoformat()
        self._last_fact = moment, self._last_fact[1] + 1 if self._last_fact[0] == moment else 1
        identity = f"{self.trace.conversation}/{self.trace.epoch}/{moment}/{self._last_fact[1]}"
        return f"fact_{hashlib.sha256(identity.encode()).hexdigest()[:8]}"

    @contextlib.asynccontextmanager
    async def _operation(
        self, memory: Memory, op: str, text: str, phase: Phase, **fields: Any
    ) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
        """Make the block one operation on memory; yield the vector of `text` and the fields of the event."""
        with self.step(op):
            try:
                vector = None if memory.embedder is None else await self._embed(text, phase, memory.embedder.name)
            except ModelError as failure:
                raise MemoryUnavailable(f"the {memory.name} memory needs its embedding model: {failure}") from failure
            with self._clock.timed(MemoryOp, phase, op=op, text=text, backend=memory.name, **fields) as facts:
                yield vector, facts
