"""Deletion replay: what each remembered fact was worth, found by playing on without it, and which ones to delete.

    worth = fact_worth("results/a", flow="coordinator")      # asks the model for the turns that read a fact
    worth[worth["delete"] != ""]                             # what misled, and what a newer fact has replaced

Of every conversation the turns up to the first that read the fact are replayed; then it is deleted, and the rest is
played anew. Its worth is how much the measure loses by that, summed over the turns from there on.

A stale fact need not have done harm yet, and then no deletion shows it. So a fact that no turn was better for is also
held against the newer ones of its memory: superseded it is by one to which it is the nearest of all that are older
(cosine of the texts at least `SAME_MATTER`) and which the same question found about as near (cosines at most
`AS_NEAR` apart): two sisters are told apart by whoever asks for one of them. `python evals/bench/fact_worth.py`
measures what is found, and how the two thresholds were chosen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentlab.core.errors import RunError
from agentlab.core.names import Mode
from agentlab.data.datasets import name_of
from agentlab.data.memory_sets import Question
from agentlab.evals.results.memories import MemoryView, Remembered
from agentlab.evals.results.run import Run, open_run
from agentlab.evals.run.fork import Fork
from agentlab.evals.run.memories import Assignment
from agentlab.lab.forks import lab_of_fork
from agentlab.session.session import Session

if TYPE_CHECKING:
    import pandas as pd

SAME_MATTER = 0.6
AS_NEAR = 0.1
COLUMNS = ["conversation", "fact", "text", "worth", "turns", "reads", "delete", "newer", "alike", "apart"]
Place = tuple[str, str]
"""Label of the replay, and conversation."""


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
    graded turns it may have touched; `delete`, "misled", "superseded" or ""; `newer`, the fact that may supersede it,
    with `alike`, the cosine of both, and `apart`, how much nearer to the question one of them was.

    Questions about one memory share a row. `flow` is needed where several flows of the run have a memory. `objects`
    are a Lab's, such as a model object. Raises RunError for a run that was not recorded or read no fact, and where a
    replay lacks a recording.
    """
    from agentlab.evals.results.frames import Frame

    run = run if isinstance(run, Run) else open_run(run)
    flow = flow or _only_flow(run)
    views = {
        name: MemoryView(name, trace.events)
        for (label, name, epoch), trace in run.traces.items()
        if label == flow and epoch == 0 and conversation in (None, name)
    }
    facts: dict[Place, Remembered] = {}
    for name, view in views.items():
        number: Counter[str] = Counter()
        for known in view.facts.values():
            if known.read:
                number[name] += 1
                facts[f"{flow} without {number[name]}", name] = known
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
        memories = {
            name_of(dataset, talk, datasets): talk.memory_of
            for dataset in datasets
            for talk in dataset.conversations
            if isinstance(talk, Question)
        }
        then, now = _scores(run, measure), _scores(played, measure)
        rows = []
        for (label, name), known in facts.items():
            touched = [turn for on, talk, turn in now if (on, talk) == (label, name) and turn >= min(known.read) - 1]
            lost = sum(then[flow, name, turn] - now[label, name, turn] for turn in touched)
            told = known.fact.created, known.written or 0
            row = {"conversation": memories.get(name, name), "fact": known.fact.id, "text": known.fact.text}
            rows.append({**row, "worth": lost, "turns": len(touched), "reads": len(set(known.read)), "told": told})
        # What was told once was read by several questions.
        first = dict.fromkeys(("text", "told"), "first") | dict.fromkeys(("worth", "turns", "reads"), "sum")
        worth = Frame(rows).groupby(["conversation", "fact"], sort=False, as_index=False).agg(first)
        vectors = lab.wait(lab.embedder.embed(list(worth["text"])))
    worth["worth"] = worth["worth"].round(9)  # what is left of equal sums is no worth
    found = [(memories.get(name, name), scores) for name, view in views.items() for scores in view.found()]
    worth[["newer", "alike", "apart"]] = _newer(worth, vectors, found)
    stale = (worth["worth"] <= 0) & (worth["alike"] >= SAME_MATTER) & (worth["apart"] <= AS_NEAR)
    worth["delete"] = np.select([worth["worth"] < 0, stale], ["misled", "superseded"], "")
    worth["kept"] = worth["delete"] == ""
    return Frame(worth.sort_values(["kept", "worth"], kind="stable", ignore_index=True)[COLUMNS])


def _newer(
    worth: pd.DataFrame, vectors: np.ndarray, found: Sequence[tuple[str, Mapping[str, float]]]
) -> list[tuple[str, float, float]]:
    """Of each fact the newer one that has none nearer to it among all that are older, how alike the two are, and how
    far apart for the question that was most about them. `found` has what each search brought: memory, cosine by fact.
    """
    facts: list[Any] = list(worth.itertuples())
    alike = vectors @ vectors.T
    nearest: dict[int, tuple[float, int]] = {}
    for place, one in enumerate(facts):
        older = [n for n, of in enumerate(facts) if of.conversation == one.conversation and of.told < one.told]
        if older:
            match = max(older, key=lambda n: float(alike[place, n]))
            nearest[match] = max(nearest.get(match, (-1.0, 0)), (float(alike[place, match]), place))
    newer = [("", math.nan, math.nan)] * len(facts)
    for place, (cosine, by) in nearest.items():
        one, other = facts[place], facts[by]
        both = [
            (scores[one.fact], scores[other.fact])
            for memory, scores in found
            if memory == one.conversation and {one.fact, other.fact} <= {*scores}
        ]
        if both:
            asked = max(both, key=max)
            newer[place] = other.fact, cosine, abs(asked[0] - asked[1])
    return newer


def _only_flow(run: Run) -> str:
    reading = {play[0] for play, trace in run.traces.items() if MemoryView("", trace.events).operations}
    if len(reading) != 1:
        raise RunError(
            f"{run.path}: name one of the flows with a memory: {', '.join(sorted(reading)) or 'it has none'}"
        )
    return reading.pop()


def _scores(run: Run, measure: str) -> dict[tuple[str, str, int], float]:
    return {
        (row.flow, row.conversation, row.turn): float(row.value)
        for row in run.folder.scores()
        if row.metric == measure and row.epoch == 0 and row.value is not None
    }
