"""Times adds and searches of the memory backends without a language model, beside a bare scan with numpy.

    python evals/bench/memory.py [--facts 1000 --facts 10000] [--dimensions 384] [--json]

A store is filled through the contract (`ingest`) and then measured, the median of the rounds in milliseconds:

    search      the 3 nearest facts
    add         one more fact after the duplicate check, on disk or on the server before it returns
    snapshot    an independent copy

Brackets hold the multiple of the bare scan (one `np.vecdot` and a partition over the same vectors in the same
run), because machines differ and multiples less so. MongoDB is measured at MONGODB_URI, and left out where that is not
set.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from agentlab.core.errors import AgentlabError
from agentlab.core.plugins import names, resolve

_NOW = datetime(2026, 1, 5)
_SEARCHES, _ADDS, _COPIES = 50, 20, 3


class Unasked:
    """Embedder of stores whose vectors are generated; it embeds nothing."""

    def __init__(self, dimensions: int) -> None:
        self.name = f"random-{dimensions}"
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise AssertionError("nothing is embedded")


async def median_ms(rounds: int, call: Callable[[int], Awaitable[Any]]) -> float:
    spent = []
    for number in range(rounds):
        started = time.perf_counter()
        await call(number)
        spent.append(time.perf_counter() - started)
    return statistics.median(spent) * 1000


async def bare_scan(vectors: np.ndarray, queries: np.ndarray) -> float:
    async def scan(number: int) -> list[int]:
        scores = np.vecdot(vectors, queries[number])
        return sorted(np.argpartition(-scores, 3)[:3], key=lambda row: -scores[row])

    return await median_ms(_SEARCHES, scan)


async def measure(backend: str, address: str | Path, vectors: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    """Row of the table: a backend at one size."""
    memory = resolve("memory", backend).connect(address, Unasked(vectors.shape[1]))
    count = itertools.count()

    def new_id() -> str:
        return f"memory_{next(count)}"

    async def snapshot(number: int) -> None:
        copy = await memory.snapshot()
        await copy.search("", queries[number])
        await copy.close()

    started = time.perf_counter()
    texts = [f"fact number {n} about the user and what the user likes" for n in range(len(vectors))]
    await memory.ingest(texts, vectors, created=[_NOW] * len(texts), new_id=new_id)
    row = {"backend": backend, "facts": len(vectors), "fill_s": time.perf_counter() - started}
    try:
        row["search_ms"] = await median_ms(_SEARCHES, lambda n: memory.search("", queries[n], top_k=3))
        row["add_ms"] = await median_ms(
            _ADDS, lambda n: memory.add(f"one more, {n}", queries[n], created=_NOW, new_id=new_id)
        )
        row["snapshot_ms"] = await median_ms(_COPIES, snapshot)
        await memory.clear()
    finally:
        await memory.close()
    return row


async def table(sizes: Sequence[int], dimensions: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    rows = []
    for size in sizes:
        raw = random.standard_normal((size + _SEARCHES, dimensions)).astype(np.float32)
        raw /= np.linalg.norm(raw, axis=1, keepdims=True)
        vectors, queries = raw[:size], raw[size:]
        scan = await bare_scan(vectors, queries)
        for backend in names("memory"):
            if backend == "mongo" and not os.environ.get("MONGODB_URI"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                location = f"bench-{uuid.uuid4().hex}" if backend == "mongo" else folder
                rows.append({**await measure(backend, location, vectors, queries), "scan_ms": scan})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, action="append", help="number of facts in the memory; may be repeated")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    options = parser.parse_args()
    try:
        rows = asyncio.run(table(options.facts or [1_000, 10_000], options.dimensions))
    except AgentlabError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print("\n".join(json.dumps(row) for row in rows))
        return 0
    print(f"{'backend':<10}{'facts':>8}{'fill s':>9}{'scan ms':>9}{'search ms':>17}{'add ms':>17}{'snapshot ms':>17}")
    for row in rows:
        cells = [
            f"{row[name]:.2f} ({row[name] / row['scan_ms']:.0f}x)" for name in ("search_ms", "add_ms", "snapshot_ms")
        ]
        head = f"{row['backend']:<10}{row['facts']:>8}{row['fill_s']:>9.2f}{row['scan_ms']:>9.2f}"
        print(head + "".join(f"{cell:>17}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
