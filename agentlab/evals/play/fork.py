"""Forks: runs that replay the first turns of another run and play the rest with another variant.

    fork = Fork(of="results/a", turn=2, source_variants={"tools": source_variant})
    await run(bench, fork=fork)

The source variant answers the first `turn` turns, from recordings only. Then the session switches to the new variant
and keeps its history, memory and counters.
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

        `seat` is that of the first turns; `opened` closes the resources of the new variant.
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
