"""Grades the memory's rule for near facts on labelled pairs: a stored fact and a later text.

    python evals/bench/corrections.py                   # the half that was not read while the rule was chosen
    python evals/bench/corrections.py --half build --threshold .8
    python evals/bench/corrections.py --wrong           # also each pair with an outcome that loses or repeats a fact

`new` is stored beside the old fact. `near` shows both facts to the model, whose next write replaces the old one.
`duplicate` is not stored. A correction or another fact is lost as a duplicate; a paraphrase is stored twice as new. The
columns `before` have the older rule, by similarity alone. The pairs are in `evals/labels`. Brackets hold Wilson's 95 %
intervals.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from labelled import Fraction, Row, read, table

from agentlab.core import plugins
from agentlab.core.protocols import DUPLICATE_THRESHOLD, NEAR_THRESHOLD, Embedder
from agentlab.memory import sqlite

CORRECTIONS = ("negation", "number", "date", "name")
Outcome = Literal["new", "near", "duplicate"]


async def outcome(row: Row, embedder: Embedder, threshold: float) -> Outcome:
    """Store the first text of a pair in an empty memory, add the second one, and return the outcome."""
    with tempfile.TemporaryDirectory() as folder:
        memory = sqlite.connect(folder, embedder)
        ids = itertools.count(1)
        for text in (row["stored"], row["told"]):
            vector = (await embedder.embed([text]))[0]
            added = await memory.add(
                text,
                vector,
                created=datetime(2026, 1, 5),
                new_id=lambda: f"fact_{next(ids)}",
                duplicate_threshold=threshold,
            )
        await memory.close()
    return "new" if added.is_new else "near" if added.differs else "duplicate"


def cells_of(kind: str, outcomes: Sequence[Outcome], before: Sequence[Outcome]) -> list[object]:
    """Return the row of a kind: counts of outcomes, and the share that is lost or stored twice, now and before."""
    counts, wrong = Counter(outcomes), "new" if kind == "paraphrase" else "duplicate"
    shares = [Fraction(list(each).count(wrong), len(each)).with_interval() for each in (outcomes, before)]
    return [kind, len(outcomes), *(counts[key] for key in ("new", "near", "duplicate")), *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("held", "build", "both"), default="held", help="half of the labels")
    parser.add_argument("--threshold", type=float, default=NEAR_THRESHOLD, help="cosine similarity of a near fact")
    parser.add_argument("--embedder", default="local/all-minilm-l6-v2", help="embedder of the memory")
    parser.add_argument("--wrong", action="store_true", help="print pairs that are lost or repeated, too")
    options = parser.parse_args()
    provider, name = plugins.resolve_provider("models.embedders", options.embedder)
    embedder = provider.connect(name)
    by_kind: dict[str, tuple[list[Outcome], list[Outcome]]] = {"all corrections": ([], [])}
    for row in read("corrections", options.half):
        now = asyncio.run(outcome(row, embedder, options.threshold))
        older = "new" if asyncio.run(outcome(row, embedder, DUPLICATE_THRESHOLD)) == "new" else "duplicate"
        for kind in (row["kind"], *(["all corrections"] if row["kind"] in CORRECTIONS else [])):
            outcomes, before = by_kind.setdefault(kind, ([], []))
            outcomes.append(now)
            before.append(older)
        if options.wrong and now == ("new" if row["kind"] == "paraphrase" else "duplicate"):
            print(f"{row['id']}: {now}: {row['stored']} <- {row['told']}")
    head = ["kind", "pairs", "new", "near", "duplicate", "lost or stored twice", "before"]
    print("\n".join(table(head, [cells_of(kind, *results) for kind, results in by_kind.items()])))


if __name__ == "__main__":
    main()
