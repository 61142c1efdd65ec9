"""What was remembered in a conversation, folded from its trace: what is stored, what a turn read and wrote, how a fact
came to be.

    memory = run.memory("memory-007", "chatbox")
    memory                      # in a notebook: every fact, when it was written and read, what replaced it
    memory.search("Bern")
    memory.turn(3)
    memory.history("fact_1a2b3c4d")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.core.events import Event, MemoryOp
from agentlab.core.messages import Fact

if TYPE_CHECKING:
    from agentlab.evals.store.frames import Frame


@dataclass
class Remembered:
    """A fact, and what became of it; turns count from 1."""

    fact: Fact
    written: int | None = None
    """The turn that wrote it; None for what was there before."""
    replaces: str | None = None
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
        self.facts: dict[str, Remembered] = {}
        for op in self.operations:
            for fact in op.facts:
                known = self.facts.setdefault(fact.id, Remembered(fact))
                if op.op == "recall":
                    known.read.append(op.turn + 1)
                elif op.written:
                    known.written, known.replaces = op.turn + 1, op.replaces
                    if op.replaces in self.facts:
                        self.facts[op.replaces].replaced_by = fact.id

    def __getitem__(self, fact: str) -> Remembered:
        if fact not in self.facts:
            raise RunError(plugins.unknown("fact of this conversation", fact, self.facts))
        return self.facts[fact]

    @property
    def stored(self) -> list[Remembered]:
        """What is there in the end."""
        return [known for known in self.facts.values() if known.replaced_by is None]

    def search(self, words: str) -> list[Remembered]:
        """The facts, those that are gone too, that have each of `words` in them."""
        wanted = words.lower().split()
        return [known for known in self.facts.values() if all(word in known.fact.text.lower() for word in wanted)]

    def turn(self, turn: int) -> list[str]:
        """What a turn, counted from 1, read and wrote, a line each."""
        return [line for op in self.operations if op.turn + 1 == turn for line in _told(op)]

    def history(self, fact: str) -> list[Remembered]:
        """A fact with all that it replaced and all that replaced it, oldest first."""
        chain = [self[fact]]
        while (before := chain[0].replaces) in self.facts and before is not None:
            chain.insert(0, self.facts[before])
        while (after := chain[-1].replaced_by) is not None:
            chain.append(self.facts[after])
        return chain

    @property
    def table(self) -> Frame:
        return self.table_of(self.facts.values())

    @staticmethod
    def table_of(facts: Iterable[Remembered]) -> Frame:
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
            for known in facts
        ]
        return frame_of(rows, ["fact", "text", "about", "written in turn", "read in turns", "replaced by"])

    def __repr__(self) -> str:
        return f"<MemoryView of {self.name}: {len(self.stored)} facts stored, {len(self.operations)} operations>"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


def _told(op: MemoryOp) -> list[str]:
    if op.op == "recall":
        return [f"reads {fact.id} ({fact.score}): {fact.text}" for fact in op.facts] or [f"finds nothing: {op.text}"]
    if not op.written:
        return [f"does not write, too near to {fact.id}: {op.text}" for fact in op.facts] or [
            f"cannot write: {op.text}"
        ]
    instead = f" in place of {op.replaces}" if op.replaces else ""
    return [f"writes {fact.id}{instead}: {fact.text}" for fact in op.facts]
