"""Compares measures of an answer with human judgements: agreement, Cohen's kappa and area under the curve.

make gate && python evals/bench/correctness.py results/gate            # our own labels, evals/labels/answers.jsonl
python evals/bench/correctness.py ../shared/published/locomo judge
python evals/bench/correctness.py ../shared/published/mtrag_human human_completeness --right 4

The threshold of each measure is chosen on every other conversation, by kappa, and agreement and kappa are those of the
rest. The area is that of all, for nothing is chosen; beside it how much more `answer_correctness` has, with the 95 %
interval over resampled conversations. An answer that a measure does not decide counts as 0, and is counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from agentlab.data.conversations import Turn
from agentlab.evals.grade.imported import read_turns
from agentlab.evals.published.reproduce import Pack
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.overlap import rouge_l
from agentlab.evals.scorers.words import best_score, f1, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.lab.run import open_run

LABELS = Path(__file__).parents[1] / "labels" / "answers.jsonl"
TURN_KEY = "flow", "conversation", "turn"
OURS = "answer_correctness"

CANDIDATES: dict[str, Callable[[str, str], float | None]] = {
    "exact_match": lambda reply, reference: float(normalise(reply) == normalise(reference)),
    "containment": lambda reply, reference: float(f" {normalise(reference)} " in f" {normalise(reply)} "),
    "answer_f1": lambda reply, reference: f1(normalise(reply), normalise(reference)),
    "rouge_l": rouge_l,
    OURS: correctness,
}


class GradedReply(NamedTuple):
    conversation: str
    text: str
    references: Sequence[str]
    right: bool


def agreement(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Return the share of equal verdicts and Cohen's kappa."""
    same = float((ours == theirs).mean())
    chance = float(ours.mean() * theirs.mean() + (1 - ours.mean()) * (1 - theirs.mean()))
    return same, (same - chance) / (1 - chance) if chance < 1 else 0.0


def area(values: np.ndarray, right: np.ndarray) -> float:
    """Return the probability that a right answer has a larger value than a wrong one; ties count half."""
    ranks, n = rankdata(values), int(right.sum())
    return float((ranks[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n)))


def held_out(values: np.ndarray, right: np.ndarray, first: np.ndarray) -> tuple[float, float, float]:
    """Choose a threshold on `first`; return it with the agreement and kappa on the rest."""
    thresholds = np.unique(np.round(values, 2))[1:] if len(np.unique(values)) > 1 else np.array([0.5])
    best = max(thresholds, key=lambda at: agreement(values[first] >= at, right[first])[1])
    return float(best), *agreement(values[~first] >= best, right[~first])


def gains(columns: dict[str, np.ndarray], right: np.ndarray, names: np.ndarray) -> dict[str, np.ndarray]:
    """Return, for each measure and 1,000 resamples of conversations, the difference in area to our best measure."""
    rng, each = np.random.default_rng(7), np.unique(names)
    members = [np.flatnonzero(names == name) for name in each]
    results: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(1000):
        rows = np.concatenate([members[position] for position in rng.integers(len(each), size=len(each))])
        if not right[rows].all() and right[rows].any():
            for name, values in columns.items():
                results[name].append(area(columns[OURS][rows], right[rows]) - area(values[rows], right[rows]))
    return {name: np.percentile(differences, [2.5, 97.5]) for name, differences in results.items()}


def published(folder: Path, noted: str, least: float) -> list[GradedReply]:
    with tempfile.TemporaryDirectory() as scratch:
        answers = Pack(folder, Path(scratch) / "run", print).answers
    return [
        GradedReply(a.row.conversation, a.row.reply.text, a.turn.reference_answers, a.stored[noted] >= least)
        for a in answers
        if noted in a.stored and a.row.reply and not a.turn.unanswerable
    ]


def labelled(folder: Path) -> list[GradedReply]:
    """Return our own labels; `folder` has the runs, each under the name of its spec."""
    labels = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    results = []
    for name in dict.fromkeys(label["run"] for label in labels):
        run = open_run(folder / name)
        replies = {(r.flow, r.conversation, r.turn): r.reply for r in read_turns(run.folder) if not r.epoch}
        for label in (label for label in labels if label["run"] == name):
            turn, reply = (
                run.expected_turn(label["conversation"], label["turn"]),
                replies[tuple(label[key] for key in TURN_KEY)],
            )
            assert turn is not None and reply is not None, f"{label} is not in {run.path} any more"
            results.append(GradedReply(label["conversation"], reply.text, turn.reference_answers, label["right"]))
    return results


def best(measure: Callable[[str, str], float | None], answer: GradedReply) -> float | None:
    """Return the value of the nearest reference; None if the measure does not decide."""
    turn = Turn(user="-", reference_answers=[*answer.references])
    return best_score(turn, partial(measure, strip_markers(answer.text))).value


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a pack, or a folder with the runs that evals/labels is about")
    parser.add_argument("noted", nargs="?", help="of a pack, the stored value that marks a right answer")
    parser.add_argument("--right", type=float, default=1.0, help="smallest value of a right answer (default: 1)")
    given = parser.parse_args(arguments)
    answers = published(given.folder, given.noted, given.right) if given.noted else labelled(given.folder)
    right = np.array([answer.right for answer in answers])
    if len({*right}) < 2:
        parser.error(f"{len(answers)} answers of {given.folder} have the same verdict by {given.noted}")
    names = np.array([answer.conversation for answer in answers])
    first = np.isin(names, np.unique(names)[::2])
    print(f"{given.folder.name}: {len(answers)} answers, {right.mean():.3f} of them right")
    values = {name: [best(measure, answer) for answer in answers] for name, measure in CANDIDATES.items()}
    columns = {name: np.array([value or 0.0 for value in each]) for name, each in values.items()}
    print(f"{values[OURS].count(None)} are not decided by {OURS}")
    more = gains(columns, right, names)
    print("| measure | threshold | agreement | kappa | area | answer_correctness has more |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, values in columns.items():
        figures = *held_out(values, right, first), area(values, right)
        gain = (
            ""
            if name == OURS
            else f"{area(columns[OURS], right) - figures[-1]:+.3f} [{more[name][0]:.3f}, {more[name][1]:.3f}]"
        )
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in figures)} | {gain} |")


if __name__ == "__main__":
    main()
