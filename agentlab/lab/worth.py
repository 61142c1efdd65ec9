"""Deletion replay: what each remembered fact was worth, found by playing on without it.

    worth = fact_worth("results/a", flow="coordinator")      # asks the model for the turns that read a fact
    worth[worth["worth"] < 0]                                # what misled: stale, wrong, or merely in the way

Of every conversation the turns up to the first that read the fact are replayed; then it is deleted, and the rest is
played anew. Its worth is how much the measure loses by that, summed over the turns from there on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import RunError
from agentlab.core.names import Mode
from agentlab.evals.results.memories import MemoryView, Remembered
from agentlab.evals.results.run import Run, open_run
from agentlab.evals.run.fork import Fork
from agentlab.evals.run.memories import Assignment
from agentlab.lab.forks import lab_of_fork
from agentlab.session.session import Session

if TYPE_CHECKING:
    import pandas as pd

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
    """One row a fact that was read: `worth`, in units of `measure` and below 0 where it misled, and `turns`, how many
    graded turns it may have touched.

    `flow` is needed where several flows of the run have a memory. `objects` are a Lab's, such as a model object.
    Raises RunError for a run that was not recorded or read no fact, and where a replay lacks a recording.
    """
    from agentlab.evals.results.frames import frame_of

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
    scores = {run_: _scores(run_, measure) for run_ in (run, played)}
    rows = []
    for (label, name), known in facts.items():
        since = min(known.read) - 1
        turns = [turn for (of, talk, turn) in scores[played] if (of, talk) == (label, name) and turn >= since]
        lost = sum(scores[run][flow, name, turn] - scores[played][label, name, turn] for turn in turns)
        first = {"conversation": name, "fact": known.fact.id, "text": known.fact.text}
        rows.append({**first, "worth": lost, "turns": len(turns), "read in turns": sorted(set(known.read))})
    return frame_of(rows).sort_values("worth", kind="stable", ignore_index=True)


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
