"""What was remembered in a conversation, folded from its trace: each fact, who wrote it, and which turns read it.

`run.memory("memory-007", "chatbox")` gives it; in a notebook it shows itself as a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentlab.core.events import Event, MemoryOp
from agentlab.core.messages import Fact

if TYPE_CHECKING:
    from agentlab.evals.store.frames import Frame


@dataclass
class FactHistory:
    """A fact, and what became of it; turns count from 0."""

    fact: Fact
    written: int | None = None
    """The turn that wrote it; None for what was there before."""
    replaced_by: str | None = None
    read: list[int] = field(default_factory=list)
    """The turns that it was brought to."""


class MemoryView:
    """The facts of one conversation in one flow, in the order in which they were first seen.

    Of what was in memory before only that is known which was read. A flow that keeps a memory of its own, as `ego`
    does, is not seen here.
    """

    def __init__(self, name: str, events: Iterable[Event]) -> None:
        self.name = name
        self.operations = [event for event in events if isinstance(event, MemoryOp)]
        self.facts: dict[str, FactHistory] = {}
        for op in self.operations:
            for fact in op.facts:
                known = self.facts.setdefault(fact.id, FactHistory(fact))
                if op.op == "recall":
                    known.read.append(op.turn)
                elif op.written:
                    known.written = op.turn
                    if op.replaces in self.facts:
                        self.facts[op.replaces].replaced_by = fact.id

    @property
    def stored(self) -> list[FactHistory]:
        """What is there in the end."""
        return [known for known in self.facts.values() if known.replaced_by is None]

    @property
    def table(self) -> Frame:
        """One row a fact."""
        from agentlab.evals.store.frames import frame_of

        rows = [
            {
                "fact": known.fact.id,
                "text": known.fact.text,
                "about": known.fact.about,
                "written in turn": "before" if known.written is None else str(known.written),
                "read in turns": ", ".join(map(str, dict.fromkeys(known.read))),
                "replaced by": known.replaced_by or "",
            }
            for known in self.facts.values()
        ]
        return frame_of(rows, ["fact", "text", "about", "written in turn", "read in turns", "replaced by"])

    def __repr__(self) -> str:
        return f"<MemoryView of {self.name}: {len(self.stored)} facts stored, {len(self.operations)} operations>"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))
