"""Search among many passages, beside a bare scan with numpy over the same vectors.

    python evals/bench/search.py [--passages 50000] [--dimensions 384] [--rounds 15]

Milliseconds a search, the median of the rounds, and the multiple of the bare scan (`np.vecdot` over all
vectors and a partition, in the same run). The filters leave every document, half of them, one in a hundred, and one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from loopback import compared

from agentlab.data.documents import Document
from agentlab.knowledge.index import DocumentIndex, open_index

MAX_RATIO = 4.0
"""Target: a search takes at most this multiple of the bare scan."""
WORDS = 2000
"""Number of different words in the corpus; a query has four of them."""


class Random:
    """Embeds a text as random numbers."""

    def __init__(self, dimensions: int) -> None:
        self.name, self.dimensions = f"random-{dimensions}", dimensions
        self._random = np.random.default_rng(7)

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = self._random.standard_normal((len(texts), self.dimensions), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def corpus(passages: int) -> list[Document]:
    random = np.random.default_rng(3)
    words = random.integers(0, WORDS, (passages, 30))
    return [
        Document(doc_id=f"d{n}", title=f"Document {n}", text=" ".join(f"w{word}" for word in row))
        for n, row in enumerate(words)
    ]


async def measure(
    index: DocumentIndex, vectors: np.ndarray, filters: dict[str, list[str] | None], rounds: int
) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of a search for each filter, and those of the bare scans between them."""
    random = np.random.default_rng(5)
    by_filter: dict[str, tuple[float, float]] = {}
    for name, doc_ids in filters.items():
        ours, bare = [], []
        for _ in range(rounds):
            query_vector = random.standard_normal(vectors.shape[1], dtype=np.float32)
            query = " ".join(f"w{word}" for word in random.integers(0, WORDS, 4))
            started = time.perf_counter()
            scores = np.vecdot(vectors, query_vector)
            sorted(np.argpartition(-scores, 4)[:4], key=lambda row, of=scores: -of[row])
            between = time.perf_counter()
            assert await index.search(query, query_vector, top_k=4, doc_ids=doc_ids)
            bare.append(between - started)
            ours.append(time.perf_counter() - between)
        by_filter[name] = statistics.median(ours) * 1000, statistics.median(bare) * 1000
    return by_filter


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=50_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    documents, embedder = corpus(given.passages), Random(given.dimensions)
    names = [document.doc_id for document in documents]
    filters = {"none": None, "half": names[::2], "1 in 100": names[::100], "one document": names[7:8]}
    print(f"{given.passages} passages of {given.dimensions} numbers\n")
    print(f"| method | bare scan | {' | '.join(filters)} |\n| --- | ---: |{' ---: |' * len(filters)}")
    with tempfile.TemporaryDirectory() as scratch:
        for method in ("dense", "hybrid"):
            index = await open_index(documents, embedder, folder=Path(scratch), method=method)
            (file,) = Path(scratch).glob("*/vectors.npy")
            by_filter = await measure(index, np.load(file), filters, given.rounds)
            cells = [f"{ours:.1f}; {compared(ours / bare, MAX_RATIO)}" for ours, bare in by_filter.values()]
            scan = statistics.median(bare for _, bare in by_filter.values())
            print(f"| {method} | {scan:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
