"""Correlates `groundedness` with human ratings of faithfulness, beside the judges of the authors.

python evals/bench/groundedness.py ../shared/published/mtrag_human ../shared/datasets/mtrag_human

The first folder holds answers with ratings (`published.human.faithfulness`, mean over raters) and names the passages
that each answer was made of (`metadata.passages` of the turn); the second one holds these. Correlations are Pearson's,
95 % by resampling conversations.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from agentlab.evals.scorers.groundedness import supported_shares
from agentlab.evals.scorers.overlap import rouge_l
from agentlab.evals.stats.agreement import agreement
from agentlab.knowledge.citations import strip_markers

STORED = {
    "authors' judge with passages (rl_f)": "rl_f",
    "Bert-KPrec": "Bert-KPrec",
    "authors' judge (rb_llm)": "rb_llm",
}


def rows(file: Path) -> Iterator[Any]:
    return map(json.loads, file.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pack", type=Path)
    parser.add_argument("corpus", type=Path)
    given = parser.parse_args()
    turns = {conversation["id"]: conversation["turns"] for conversation in rows(given.pack / "conversations.jsonl")}
    texts = {d["doc_id"]: f"{d['title']} {d['text']}" for d in rows(given.corpus / "corpus.jsonl")}
    columns: dict[str, list[float]] = {
        "groundedness": [],
        "its least supported sentence": [],
        "ROUGE-L of passages": [],
    }
    ratings, clusters = [], []
    for row in rows(given.pack / "predictions.jsonl"):
        turn = turns[row["conversation"]][row["turn"]]
        passages = [texts[name] for name in turn["metadata"]["passages"]]
        text = strip_markers(row["answer"])
        result = supported_shares(text, [turn["user"], *passages]).values()
        if not passages or not result:
            continue
        ratings.append(statistics.mean(row["published"]["human"]["faithfulness"].values()))
        clusters.append(row["conversation"])
        for name, value in zip(
            columns, (statistics.mean(result), min(result), max(rouge_l(text, p) for p in passages)), strict=False
        ):
            columns[name].append(value)
        for name, key in STORED.items():
            columns.setdefault(name, []).append(row["published"]["automatic"][key])
    labels = (np.array(ratings)[:, None] - 1) / 3
    print(f"{len(ratings)} answers of {len(set(clusters))} conversations, {np.mean(np.array(ratings) < 4):.2f} below 4")
    print("| measure | mean | correlation | 95 % |\n| --- | ---: | ---: | --- |")
    for name, values in columns.items():
        correlation = agreement(np.array(values)[:, None], labels).correlation
        low, high = interval(np.array(values), labels[:, 0], np.array(clusters))
        print(f"| {name} | {np.mean(values):.2f} | {correlation:.2f} | [{low:.2f}, {high:.2f}] |")


def interval(values: np.ndarray, labels: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the correlation, from 1,000 resamples of conversations."""
    groups, random = [np.flatnonzero(clusters == name) for name in dict.fromkeys(clusters)], np.random.default_rng(0)
    resampled = []
    for _ in range(1000):
        rows = np.concatenate([groups[position] for position in random.integers(0, len(groups), len(groups))])
        resampled.append(np.corrcoef(values[rows], labels[rows])[0, 1])
    return float(np.nanquantile(resampled, 0.025)), float(np.nanquantile(resampled, 0.975))


if __name__ == "__main__":
    main()
