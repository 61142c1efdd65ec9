"""Checks the coverage of label-corrected judge intervals, on human ratings of published answers.

python evals/bench/judge_calibration.py ../shared/published/mtrag_human [--judged RUN faithfulness judge_grounded]

The folder holds `predictions.jsonl` with `published.human` (criterion, rater, rating 1 to 4) and `published.automatic`
(a number for each automatic judge). The median rating of an answer is its label. Each of 1,000 times 20 or 40 turns are
labelled, drawn at random. The table has the coverage and width of the 95 % interval over all answers of the pack, first
with the pack as it is, then with its conversations resampled. With `--judged` the judge is that
of a run: the pack, imported and judged by `agentlab judge`; turns without a verdict for every system are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path

import numpy as np

from agentlab.evals.stats.agreement import agreement, estimate
from agentlab.lab.run import open_run

PAIRS = (
    ("faithfulness", "rl_f"),
    ("faithfulness", "rb_llm"),
    ("completeness", "rb_llm"),
    ("appropriateness", "rb_agg"),
)
HOW = ("no judge", "judge")


Verdicts = dict[tuple[str, str, int], float | None]


def verdicts_of(run: Path, measure: str) -> Verdicts:
    """Return a judge's score of each answer, by system, conversation and turn."""
    rows = open_run(run).turn_rows()
    return {(r.flow, r.conversation, r.turn): r.scores[measure].value for r in rows if measure in (r.scores or {})}


def read(
    folder: Path, criterion: str, judge: str, verdicts: Verdicts | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores and labels from 0 to 1, shape (turns, systems), and the conversation of each turn."""
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    systems = sorted({row["system"] for row in rows})
    turns = sorted({(row["conversation"], row["turn"]) for row in rows})
    if verdicts is not None:
        turns = [turn for turn in turns if all(verdicts.get((system, *turn)) is not None for system in systems)]
    scores, labels = np.zeros((2, len(turns), len(systems)))
    for row in rows:
        if (row["conversation"], row["turn"]) not in turns:
            continue
        cell = turns.index((row["conversation"], row["turn"])), systems.index(row["system"])
        labels[cell] = (statistics.median(row["published"]["human"][criterion].values()) - 1) / 3
        grade = row["published"]["automatic"][judge] if verdicts is None else verdicts[row["system"], *turns[cell[0]]]
        scores[cell] = grade
    return scores, labels, np.array([turn[0] for turn in turns])


def interval(how: str, scores: np.ndarray, labels: np.ndarray, clusters: np.ndarray, count: int, seed: int, pair: bool):
    labelled = np.full_like(labels, np.nan)
    places = np.random.default_rng(seed).choice(len(labels), count, replace=False)
    labelled[places] = labels[places]
    used = np.zeros_like(scores) if how == "no judge" else scores
    judged_values, label_values = (
        (used[:, 0] - used[:, -1], labelled[:, 0] - labelled[:, -1]) if pair else (used[:, 0], labelled[:, 0])
    )
    return estimate(judged_values, label_values, list(clusters)).interval


def covered(scores: np.ndarray, labels: np.ndarray, clusters: np.ndarray, resampled: bool, times: int) -> None:
    names = sorted(set(clusters))
    members = [np.flatnonzero(clusters == name) for name in names]
    for count in (20, 40):
        cells = []
        for how in HOW:
            for pair in (False, True):
                truth = (labels[:, 0] - labels[:, -1]).mean() if pair else labels[:, 0].mean()
                covers, width = [], []
                for seed in range(times):
                    sample = np.random.default_rng([seed, 1]).integers(0, len(names), len(names))
                    sample = sample if resampled else np.arange(len(names))
                    rows = np.concatenate([members[position] for position in sample])
                    whose = np.repeat(np.arange(len(names)), [len(members[position]) for position in sample])
                    low, high = interval(how, scores[rows], labels[rows], whose, count, seed, pair)
                    covers.append(low <= truth <= high)
                    width.append(high - low)
                cells.append(f"{np.mean(covers):.3f} ({np.mean(width):.2f})")
        print(f"| {count} labelled turns{', conversations resampled' if resampled else ''} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--judged", nargs=3, metavar=("RUN", "CRITERION", "MEASURE"))
    parser.add_argument("--times", type=int, default=1000)
    arguments = parser.parse_args()
    run, *pair = arguments.judged or (None, None, None)
    verdicts = verdicts_of(Path(run), pair[1]) if run else None
    for criterion, judge in [pair] if run else PAIRS:
        scores, labels, clusters = read(arguments.pack, criterion, judge, verdicts)
        result = agreement(scores, labels)
        correlation, kappa = (math.nan if value is None else value for value in (result.correlation, result.kappa))
        print(f"\n{judge} as a judge of {criterion}: correlation {correlation:.2f},", end=" ")
        print(f"agreement {result.agreement:.2f}, kappa {kappa:.2f}, bias {result.bias:+.2f}; n {result.n}\n")
        print("| held (width) |", " | ".join(f"{how}: {what}" for how in HOW for what in ("mean", "difference")), "|")
        print("| --- |", "---: |" * 2 * len(HOW))
        for resampled in (False, True):
            covered(scores, labels, clusters, resampled, arguments.times)


if __name__ == "__main__":
    main()
