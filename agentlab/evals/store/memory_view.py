"""Memory of one conversation, folded from its trace: each fact, the turn that wrote it and those that read it.

`run.memory("memory-007", "chatbox")` returns it; a notebook shows it as a table.
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
    """Fact and its history; turns count from 1."""

    fact: Fact
    written: int | None = None
    """The turn that wrote it; None if it existed before."""
    replaced_by: str | None = None
    read: list[int] = field(default_factory=list)
    """Turns that recalled it."""


class MemoryView:
    """Facts of one conversation in one flow, in the order of their first operation.

    Of earlier facts it contains only those that were read. It does not see a flow's own memory, such as that of `ego`.
    """

    def __init__(self, name: str, events: Iterable[Event]) -> None:
        self.name = name
        self.operations = [event for event in events if isinstance(event, MemoryOp)]
        self.facts: dict[str, FactHistory] = {}
        for op in self.operations:
            for fact in op.facts:
                history = self.facts.setdefault(fact.id, FactHistory(fact))
                if op.op == "recall":
                    history.read.append(op.turn + 1)
                elif op.written:
                    history.written = op.turn + 1
                    if op.replaces in self.facts:
                        self.facts[op.replaces].replaced_by = fact.id

    @property
    def stored(self) -> list[FactHistory]:
        """Facts that are still stored at the end."""
        return [history for history in self.facts.values() if history.replaced_by is None]

    @property
    def table(self) -> Frame:
        """Table with one row per fact."""
        from agentlab.evals.store.frames import frame_of

        rows = [
            {
                "fact": history.fact.id,
                "text": history.fact.text,
                "about": history.fact.about,
                "written in turn": "before" if history.written is None else str(history.written),
                "read in turns": ", ".join(map(str, dict.fromkeys(history.read))),
                "replaced by": history.replaced_by or "",
            }
            for history in self.facts.values()
        ]
        return frame_of(rows, ["fact", "text", "about", "written in turn", "read in turns", "replaced by"])

    def __repr__(self) -> str:
        return f"<MemoryView of {self.name}: {len(self.stored)} facts stored, {len(self.operations)} operations>"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))
