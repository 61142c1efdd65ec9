"""Deletion replay: what each remembered fact was worth, found by playing on without it, and which ones to delete.

    worth = fact_worth("results/a", flow="coordinator")      # asks the model for the turns that read a fact
    worth[worth["delete"] != ""]                             # what misled, and what a newer fact has replaced

Of every conversation the turns up to the first that read the fact are replayed; then it is deleted, and the rest is
played anew: one replay for each fact and conversation that read it. Its worth is how much the measure loses by that,
summed over the turns from there on.

A stale fact need not have done harm yet, and then no deletion shows it. So a fact is superseded by a newer one, too, if
both are about the same matter (cosine of the texts at least `SAME_MATTER`, and the same turn read them), no question
tells them apart (it names what only one of them says, as one of two sisters), the newer one did not mislead, and no
answer is lost that it does not hold as well. `python evals/bench/fact_worth.py` measures what is found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import RunError
from agentlab.core.messages import Fact
from agentlab.core.names import Mode
from agentlab.data.conversations import Turn
from agentlab.data.datasets import name_of
from agentlab.data.memory_sets import Question
from agentlab.evals.play.fork import Fork
from agentlab.evals.play.memories import Assignment
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.stems import stem
from agentlab.evals.scorers.words import normalise
from agentlab.evals.store.memory_view import MemoryView, Remembered
from agentlab.evals.store.run import Run, open_run
from agentlab.lab.forks import lab_of_fork
from agentlab.session.session import Session

if TYPE_CHECKING:
    import pandas as pd

SAME_MATTER = 0.6
Place = tuple[str, str]
"""Label of the replay, and conversation."""
Asked = tuple[str, int]
"""Conversation and turn, from 0."""


@dataclass(frozen=True, kw_only=True)
class Deletion(Fork):
    """A fork at the first turn that read a fact, without it; each label deletes another fact of a conversation."""

    facts: Mapping[Place, Remembered] = field(default_factory=dict)

    def wants(self, play: Assignment) -> bool:
        return play.epoch == 0 and (play.variant.label, play.name) in self.facts

    def turn_of(self, play: Assignment) -> int:
        return min(self.facts[play.variant.label, play.name].read) - 1

    async def changed(self, play: Assignment, session: Session) -> None:
        if session.memory is not None:
            await session.memory.delete(self.facts[play.variant.label, play.name].fact.id)


@dataclass
class Worth:
    """What the conversations about one memory say of a fact that was read."""

    memory: str
    fact: Fact
    written: int
    """In which turn; 0 for what was there before."""
    read: set[Asked] = field(default_factory=set)
    lost: dict[Asked, float] = field(default_factory=dict)
    """What the measure lost without it."""

    @property
    def worth(self) -> float:
        return round(sum(self.lost.values()), 9)  # what is left of equal sums is no worth

    def row(self, near: Iterable[tuple[float, Worth]], asked: Mapping[Asked, Turn], measure: str) -> dict[str, Any]:
        """What is to be told of it; `near` are the facts about the same matter, with their cosines."""
        newer = [(alike, other.fact) for alike, other in near if self._is_superseded(other, asked)]
        alike, by = max(newer, key=itemgetter(0), default=(math.nan, None))
        misled = self.worth < 0
        why = f"newer: {by.text}" if by else "nothing newer is about it, so look first" if misled else ""
        why = f"{measure} is {-self.worth:.3g} higher without it; {why}" if misled else why
        told = {"conversation": self.memory, "fact": self.fact.id, "text": self.fact.text, "worth": self.worth}
        delete = {"delete": "misled" if misled else "superseded" if by else "", "why": why}
        counted = {"turns": len(self.lost), "reads": len(self.read)}
        return {**told, **counted, **delete, "newer": by.id if by else "", "alike": alike}

    def _is_superseded(self, newer: Worth, asked: Mapping[Asked, Turn]) -> bool:
        """Whether of two facts about the same matter this one is older, and `newer` is all that who asks needs."""
        older = (self.fact.created, self.written) < (newer.fact.created, newer.written)
        if not older or newer.worth < 0 or not self.read & newer.read:
            return False
        apart = _named(self.fact.text) ^ _named(newer.fact.text)
        if any(apart & _named(turn.user) for (_, number), turn in asked.items() if number >= newer.written):
            return False
        return sum(lost for at, lost in self.lost.items() if lost < 0 or not _holds(newer.fact, asked[at])) <= 0


@lru_cache(maxsize=4096)
def _named(text: str) -> frozenset[str]:
    """Stems of the words that tell matters apart: the longer ones, and no numbers, which are mostly dates."""
    words = normalise(re.sub(r"['\u2019]s\b|-", " ", text)).split()
    return frozenset(stem(word) for word in words if len(word) > 3 and not stem(word)[0].isdigit())


def _holds(fact: Fact, turn: Turn) -> bool:
    return any(correctness(fact.text, reference) == 1 for reference in turn.reference_answers)


def fact_worth(
    run: Run | str | Path,
    *,
    flow: str | None = None,
    conversation: str | None = None,
    measure: str = "answer_f1",
    mode: Mode = "auto",
    out: str | Path | None = None,
    **objects: Any,
) -> pd.DataFrame:
    """One row a fact that was read: `worth`, in units of `measure` and below 0 where it misled; `turns`, how many
    graded turns it may have touched; `delete`, "misled", "superseded" or "", and `why`; `newer`, the fact that has
    superseded it, and `alike`, the cosine of both.

    Questions about one memory share a row. `flow` is needed where several flows of the run have a memory. `objects`
    are a Lab's, such as a model object. Raises RunError for a run that was not recorded or read no fact, and where a
    replay lacks a recording.
    """
    from agentlab.evals.store.frames import frame_of

    run = run if isinstance(run, Run) else open_run(run)
    flow = flow or _only_flow(run)
    facts: dict[Place, Remembered] = {}
    for (label, name, epoch), trace in run.traces.items():
        if label == flow and epoch == 0 and conversation in (None, name):
            read = (known for known in MemoryView(name, trace.events).facts.values() if known.read)
            facts |= {(f"{flow} without {number}", name): known for number, known in enumerate(read, 1)}
    if not facts:
        raise RunError(f"{run.path}: {flow} read no fact there, so none can be deleted")
    labels = list(dict.fromkeys(label for label, _ in facts))
    lab, before = lab_of_fork(run, 0, of=flow, mode=mode, labels=labels, objects=objects)
    with lab:
        deletion = Deletion(of=str(run.path), turn=0, before=before, facts=facts)
        played = lab.run_sync(out=out, fork=deletion)
        if played.result.recordings is not None and played.result.recordings.missing:
            raise RunError(f"{played.path}: what follows a deletion is not recorded; --mode auto asks for it")
        datasets = lab.datasets()
        talks = {name_of(dataset, talk, datasets): talk for dataset in datasets for talk in dataset.conversations}
        # What was told once is read by several questions.
        memories = {name: talk.memory_of if isinstance(talk, Question) else name for name, talk in talks.items()}
        then, now = _scores(run, measure), _scores(played, measure)
        found: dict[tuple[str, str], Worth] = {}
        for (label, name), known in facts.items():
            memory = memories.get(name, name)
            one = found.setdefault((memory, known.fact.id), Worth(memory, known.fact, known.written or 0))
            one.read |= {(name, turn - 1) for turn in known.read}
            for on, talk, turn in now:
                if (on, talk) == (label, name) and turn >= min(known.read) - 1:
                    one.lost[name, turn] = then[flow, name, turn] - now[label, name, turn]
        vectors = lab.wait(lab.embedder.embed([one.fact.text for one in found.values()]))
    graded = [(name, turn) for on, name, turn in then if on == flow and conversation in (None, name)]
    rows = []
    for one, row in zip(found.values(), (vectors @ vectors.T).tolist(), strict=True):
        near = [(alike, other) for alike, other in zip(row, found.values(), strict=True) if alike >= SAME_MATTER]
        asked = {at: talks[at[0]].turns[at[1]] for at in graded if memories[at[0]] == one.memory}
        rows.append(one.row(near, asked, measure))
    return frame_of(sorted(rows, key=lambda row: (not row["delete"], row["worth"])))


def _only_flow(run: Run) -> str:
    reading = {play[0] for play, trace in run.traces.items() if MemoryView("", trace.events).operations}
    if len(reading) != 1:
        raise RunError(f"{run.path}: name a flow with a memory: {', '.join(sorted(reading)) or 'it has none'}")
    return reading.pop()


def _scores(run: Run, measure: str) -> dict[tuple[str, str, int], float]:
    return {
        (row.flow, row.conversation, row.turn): float(row.value)
        for row in run.folder.scores()
        if row.metric == measure and row.epoch == 0 and row.value is not None
    }
