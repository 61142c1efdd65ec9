"""A run that goes on where another one has been: its first turns are replayed as they were, the rest is played anew.

    fork = Fork(turn=2, before={"tools": variant_of_then}, of="results/a")
    await run(bench, fork=fork)

Up to the turn the flow of then answers, from recordings alone; then the one of now takes the session over, with what
was said, remembered and counted in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentlab.core.messages import Reply, UserTurn
from agentlab.core.protocols import Memory
from agentlab.evals.play.memory_pool import write_facts
from agentlab.evals.play.plan import Trial
from agentlab.session.session import Session
from agentlab.wire.recorder import Recorder
from agentlab.workbench.seat import Seat
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench


@dataclass(frozen=True, kw_only=True)
class Fork:
    """`source_variants` are the variants of then by the label of now; the first `turn` turns of a conversation
    are theirs.
    """

    of: str
    turn: int
    source_variants: Mapping[str, Variant]

    @property
    def header(self) -> dict[str, Any]:
        flows = {label: variant.label for label, variant in self.source_variants.items()}
        return {"of": self.of, "turn": self.turn, "flows": flows}

    def recorder(self, bench: Workbench) -> Recorder:
        """For the first turns: they ask nobody."""
        return Recorder("replay", bench.recorder.recordings)

    async def switch(
        self, bench: Workbench, play: Trial, session: Session, seat: Seat, opened: contextlib.AsyncExitStack
    ) -> Callable[[UserTurn, Session], Awaitable[Reply]]:
        """Hand the session over to the variant of now, and return what answers from here on.

        `seat` is that of the first turns; what is opened for the others ends with `opened`.
        """
        memory = await self._memory(bench, play, session, opened)
        index = await bench.index(play.dataset.documents, play.variant.retrieval)
        now = replace(seat, index=index, memory=memory, recorder=None)
        session.switch_to(await bench.session(play.variant, now))
        return play.variant.respond

    async def _memory(
        self, bench: Workbench, play: Trial, session: Session, opened: contextlib.AsyncExitStack
    ) -> Memory | None:
        """What was remembered so far; copied, fact by fact, where another backend is to keep it."""
        before, after = self.source_variants[play.variant.label].memory, play.variant.memory
        if before == after or after is None:
            return session.memory if after is not None else None
        memory, _ = await opened.enter_async_context(bench.memory(play.variant))
        facts = await session.memory.facts() if session.memory is not None else ()
        if facts and memory is not None:
            await write_facts(bench, memory, facts)
        return memory
