"""Deletion replay: the worth of each recalled fact of a run, and the facts to delete.

    python evals/bench/worth.py results/a --flow coordinator [--measure answer_f1] [--mode auto|replay]

Of every conversation the turns up to the first that read a fact are replayed from the recordings; then the fact is
deleted, and the rest is played again, which asks the model for what is new. The worth of a fact is how much the measure
loses without it, summed over the turns from there on: below 0, it misled.

A stale fact need not have done harm yet, and then no deletion shows it. So a fact is also superseded by a newer one if
both are about the same matter (cosine of the texts at least `SAME_MATTER`, and the same turn read them), no question
names what only one of them says, the newer one did not mislead, and it holds every answer that would be lost.
`python evals/bench/fact_worth.py` measures precision and recall of these proposals.

A deletion is a fork of the run into a memory that leaves the fact out. Facts of different memories that are first read
in the same turn share a fork. A run with several flows needs `--flow`.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

import agentlab as al
from agentlab.core import plugins
from agentlab.core.constants import Mode
from agentlab.core.errors import RunError
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory, NewId
from agentlab.data.conversations import Turn
from agentlab.data.datasets import conversation_name
from agentlab.data.memory_sets import Question
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.stems import stem
from agentlab.evals.scorers.words import normalise
from agentlab.evals.store.run import FactHistory, MemoryView
from agentlab.lab.forks import fork
from agentlab.lab.run import Run

SAME_MATTER = 0.6
TurnRef = tuple[str, int]
"""Name of a conversation, and a turn counted from 0."""


class Without:
    """A memory backend that omits some facts of the source run; a fork names it as `worth:WITHOUT`."""

    backend = "sqlite"
    deleted: frozenset[str] = frozenset()

    def connect(self, folder: str, embedder: Embedder) -> Memory:
        memory: Memory = plugins.resolve("memory", self.backend).connect(folder, embedder)
        ingest, removed = memory.ingest, self.deleted

        async def leave_out(
            texts: Sequence[str], vectors: Any, *, created: Sequence[datetime], new_id: NewId
        ) -> tuple[Fact, ...]:
            ids = [new_id() for _ in texts]
            stored = [position for position, name in enumerate(ids) if name not in removed]
            left = iter([ids[position] for position in stored])
            return await ingest(
                [texts[position] for position in stored],
                [vectors[position] for position in stored],
                created=[created[position] for position in stored],
                new_id=lambda: next(left),
            )

        memory.ingest = leave_out  # type: ignore[method-assign]
        return memory


WITHOUT = Without()


@dataclass
class Worth:
    """Findings on one fact in the conversations about its memory."""

    memory: str
    fact: Fact
    written: int
    """Turn that stored the fact, counted from 0; -1 if it was stored before the conversation."""
    read: set[TurnRef] = field(default_factory=set)
    lost: dict[TurnRef, float] = field(default_factory=dict)
    """Loss in the measure if the fact is deleted."""

    @property
    def worth(self) -> float:
        return round(sum(self.lost.values()), 9)  # what is left of equal sums is no worth

    def row(
        self, near: Iterable[tuple[float, Worth]], questions: Mapping[TurnRef, Turn], measure: str
    ) -> dict[str, Any]:
        """Row of the table; `near` has the facts on the same topic, with their cosines."""
        newer = [(alike, other.fact) for alike, other in near if self._is_superseded(other, questions)]
        alike, by = max(newer, key=itemgetter(0), default=(math.nan, None))
        misled = self.worth < 0
        why = f"newer: {by.text}" if by else "nothing newer is about it, so look first" if misled else ""
        why = f"{measure} is {-self.worth:.3g} higher without it; {why}" if misled else why
        row = {"conversation": self.memory, "fact": self.fact.id, "text": self.fact.text, "worth": self.worth}
        delete = {"delete": "misled" if misled else "superseded" if by else "", "why": why}
        counted = {"turns": len(self.lost), "reads": len(self.read)}
        return {**row, **counted, **delete, "newer": by.id if by else "", "alike": alike}

    def _is_superseded(self, newer: Worth, questions: Mapping[TurnRef, Turn]) -> bool:
        """Return True if this fact is older than `newer` on the same topic, and `newer` alone answers a question."""
        older = (self.fact.created, self.written) < (newer.fact.created, newer.written)
        if not older or newer.worth < 0 or not self.read & newer.read:
            return False
        apart = named(self.fact.text) ^ named(newer.fact.text)
        if any(apart & named(turn.user) for (_, number), turn in questions.items() if number > newer.written):
            return False
        return sum(lost for at, lost in self.lost.items() if lost < 0 or not holds(newer.fact, questions[at])) <= 0


@lru_cache(maxsize=4096)
def named(text: str) -> frozenset[str]:
    """Return the stems that identify a topic: those of longer words, without numbers, which are mostly dates."""
    words = normalise(re.sub(r"['\u2019]s\b|-", " ", text)).split()
    return frozenset(stem(word) for word in words if len(word) > 3 and not stem(word)[0].isdigit())


def holds(fact: Fact, turn: Turn) -> bool:
    return any(correctness(fact.text, reference) == 1 for reference in turn.reference_answers)


def fact_worth(
    run: Run, *, out: Path, flow: str | None = None, measure: str = "answer_f1", mode: Mode = "auto"
) -> pd.DataFrame:
    """One row for each fact that was read: `worth` in units of `measure`; `turns`, how many graded turns it may have
    touched; `delete`, "misled", "superseded" or "", and `why`; `newer`, the fact that superseded it, and `alike`, the
    cosine of both. Questions about one memory share a row. The forks are written to `out`.
    """
    spec = run.folder.header["spec"]
    datasets = [al.load_dataset(path) for path in spec["datasets"]]
    talks = {conversation_name(dataset, talk, datasets): talk for dataset in datasets for talk in dataset.conversations}
    memories = {name: talk.memory_of if isinstance(talk, Question) else name for name, talk in talks.items()}
    flow = flow or _only_flow(run)
    facts_of = {
        name: [fact for fact in MemoryView(name, trace.events).facts.values() if fact.read]
        for (label, name, epoch), trace in run.traces.items()
        if label == flow and epoch == 0
    }
    if not any(facts_of.values()):
        raise RunError(f"{run.path}: {flow} read no fact, so none can be deleted")
    results: dict[tuple[str, str], Worth] = {}
    for name, facts in facts_of.items():
        for fact in facts:
            key = memories[name], fact.fact.id
            one = results.setdefault(key, Worth(key[0], fact.fact, -1 if fact.written is None else fact.written))
            one.read |= {(name, turn) for turn in fact.read}
    then = _scores(run, flow, measure)
    for number, (turn, part) in enumerate(_forks(facts_of, memories, list(results))):
        WITHOUT.deleted = frozenset(name for _, name in part)
        played = fork(run, turn, flow=_entry(spec, flow), replace_flow=flow, mode=mode, out=out / str(number))
        if played.result.recordings is not None and played.result.recordings.missing:
            raise RunError(f"{played.path}: what follows a deletion is not recorded; --mode auto asks for it")
        now = _scores(played, flow, measure)
        for name, facts in facts_of.items():
            for fact in facts:
                if (memories[name], fact.fact.id) in part and min(fact.read) == turn:
                    one = results[memories[name], fact.fact.id]
                    one.lost |= {at: then[at] - now[at] for at in now if at[0] == name and at[1] >= turn}
    given = {"mode": "auto", "recordings": str(out), "embedder": spec["embedder"]}
    with al.Lab(flows=["rag_only"], model="scripted/none", **given) as lab:
        vectors = lab.loop.run_coroutine(lab.bench.embedder.embed([one.fact.text for one in results.values()]))
    rows = []
    for one, row in zip(results.values(), (vectors @ vectors.T).tolist(), strict=True):
        near = [(alike, other) for alike, other in zip(row, results.values(), strict=True) if alike >= SAME_MATTER]
        requests = {at: talks[at[0]].turns[at[1]] for at in then if memories[at[0]] == one.memory}
        rows.append(one.row(near, requests, measure))
    return pd.DataFrame(sorted(rows, key=lambda row: (not row["delete"], row["worth"])))


def _forks(
    facts_of: Mapping[str, Sequence[FactHistory]], memories: Mapping[str, str], keys: Sequence[tuple[str, str]]
) -> list[tuple[int, set[tuple[str, str]]]]:
    """Yield each turn to fork at with the facts to delete there: one fact per memory, and no id twice."""
    turns: dict[tuple[str, str], set[int]] = defaultdict(set)
    for name, facts in facts_of.items():
        for fact in facts:
            turns[memories[name], fact.fact.id].add(min(fact.read))
    uses = Counter(name for _, name in keys)
    parts: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
    taken: Counter[tuple[int, str]] = Counter()
    for key in keys:
        memory, name = key
        for turn in turns[key]:
            parts[turn, f"{taken[turn, memory]}" if uses[name] == 1 else f"{memory} {name}"].add(key)
            taken[turn, memory] += 1
    return [(turn, part) for (turn, _), part in sorted(parts.items())]


def _entry(spec: Mapping[str, Any], flow: str) -> dict[str, Any]:
    """Return the flow's entry of the spec with its memory replaced."""
    entry = next(entry for entry in spec["flows"] if (entry["label"] or entry["flow"]) == flow)
    WITHOUT.backend = entry["memory"] or spec["memory"]
    return {**entry, "memory": f"{__name__}:WITHOUT"}


def _only_flow(run: Run) -> str:
    reading = {play[0] for play, trace in run.traces.items() if MemoryView("", trace.events).operations}
    if len(reading) != 1:
        raise RunError(f"{run.path}: name a flow with a memory: {', '.join(sorted(reading)) or 'it has none'}")
    return reading.pop()


def _scores(run: Run, flow: str, measure: str) -> dict[TurnRef, float]:
    return {
        (row.conversation, row.turn): float(score.value)
        for row in run.rows(lambda row: row.flow == flow and row.epoch == 0)
        if (score := (row.scores or {}).get(measure)) and score.value is not None
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a recorded run")
    parser.add_argument("--flow", help="flow with a memory (needed with several flows)")
    parser.add_argument("--measure", default="answer_f1")
    parser.add_argument(
        "--mode", choices=("auto", "replay"), default="auto", help="auto: call the model for what is new; replay: never"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentlab-") as out:
        table = fact_worth(
            al.open_run(given.run), out=Path(out), flow=given.flow, measure=given.measure, mode=given.mode
        )
    removed, stored = table[table["delete"] != ""], table[table["delete"] == ""]
    print(f"{len(removed)} of the {len(table)} facts that were read should be deleted")
    for row in removed.itertuples():
        print(f"  {row.fact} of {row.conversation}: {row.text}\n      {row.delete}: {row.why}")
    if len(stored):
        print(f"\nto keep, and what {given.measure} loses without each:")
        print(stored[["fact", "conversation", "worth", "reads", "text"]].to_string(index=False))


if __name__ == "__main__":
    main()
