"""How well measures of an answer agree with whoever judged it: agreement, Cohen's kappa and area under the curve.

python evals/bench/correctness.py ../shared/published/locomo judge
python evals/bench/correctness.py ../shared/published/mtrag_human human_completeness --right 4

The threshold of each measure is chosen on every other conversation, by kappa, and the figures are those of the rest.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from agentlab.evals.published.reproduce import Pack
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.overlap import rouge_l
from agentlab.evals.scorers.words import f1, normalise

CANDIDATES: dict[str, Callable[[str, str], float]] = {
    "exact_match": lambda said, reference: float(normalise(said) == normalise(reference)),
    "containment": lambda said, reference: float(f" {normalise(reference)} " in f" {normalise(said)} "),
    "answer_f1": lambda said, reference: f1(normalise(said), normalise(reference)),
    "rouge_l": rouge_l,
    "answer_correctness": correctness,
}


def agreement(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """The share of equal verdicts, and Cohen's kappa."""
    same = float((ours == theirs).mean())
    chance = float(ours.mean() * theirs.mean() + (1 - ours.mean()) * (1 - theirs.mean()))
    return same, (same - chance) / (1 - chance) if chance < 1 else 0.0


def area(values: np.ndarray, right: np.ndarray) -> float:
    """That a right answer has the larger value than a wrong one, ties counting half."""
    ranks, n = rankdata(values), int(right.sum())
    return float((ranks[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n)))


def held_out(values: np.ndarray, right: np.ndarray, first: np.ndarray) -> tuple[float, float, float, float]:
    """The threshold chosen on `first`, and of the rest agreement, kappa and area."""
    thresholds = np.unique(np.round(values, 2))[1:] if len(np.unique(values)) > 1 else np.array([0.5])
    best = max(thresholds, key=lambda at: agreement(values[first] >= at, right[first])[1])
    rest = ~first
    return float(best), *agreement(values[rest] >= best, right[rest]), area(values[rest], right[rest])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pack", type=Path)
    parser.add_argument("noted", help="the value stored with each answer that says whether it is right")
    parser.add_argument("--right", type=float, default=1.0, help="from which value on it is (default: 1)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Pack(given.pack, Path(scratch) / "run")
    answers = [a for a in pack.answers if given.noted in a.stored and a.row.reply and not a.turn.unanswerable]
    right = np.array([answer.stored[given.noted] >= given.right for answer in answers])
    names = sorted({answer.row.conversation for answer in answers})
    first = np.isin([answer.row.conversation for answer in answers], names[::2])
    print(f"{pack.name}: {len(answers)} answers, {right.mean():.3f} of them right by {given.noted}")
    print("| measure | threshold | agreement | kappa | area |\n| --- | ---: | ---: | ---: | ---: |")
    for name, measure in CANDIDATES.items():
        values = np.array(
            [max(measure(a.row.reply.text, r) for r in a.turn.reference_answers) for a in answers if a.row.reply]
        )
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in held_out(values, right, first))} |")


if __name__ == "__main__":
    main()
