"""Measures the CPU time that grading one turn costs, on labelled answers in ten languages.

    python evals/bench/grading.py [--rounds 3]

Each turn has a reply and one reference answer, and all scorers of text grade it that need no model and no vector. No
text comes twice in a round, so caches hardly help. The target is 1 ms a turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
from labelled import LANGUAGES, Row, read, table
from loopback import compared

from agentlab.core.messages import Reply
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import TurnOutcome, answer, citations, correctness, refusal, rouge

SCORERS = (answer, citations, correctness, refusal, rouge)
MOST_MS = 1.0
"""Target for the CPU milliseconds of a turn."""
WARM_UP = 40
"""Step between turns that are graded before the clock starts, because the first ones compile patterns."""


def grade(rows: Sequence[Row]) -> float:
    """Return the CPU milliseconds that a turn takes."""
    turns = [Turn(user="-", reference_answers=[row["reference"]], relevant_doc_ids=["d"]) for row in rows]
    outcomes = [TurnOutcome(reply=Reply(text=row["answer"]), events=(), embed=lambda texts: np.eye(1)) for row in rows]
    start = time.process_time()
    for turn, outcome in zip(turns, outcomes, strict=True):
        for scorer in SCORERS:
            if scorer.metrics(turn):
                scorer.score(turn, outcome)
    return 1000 * (time.process_time() - start) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the table shows their median")
    rounds = range(parser.parse_args().rounds)
    everything, cells = read("pairs", "both"), []
    grade(everything[::WARM_UP])
    for name, languages in (("English", LANGUAGES[:1]), ("nine other languages", LANGUAGES[1:])):
        rows = [row for row in everything if row["lang"] in languages]
        cells.append([name, len(rows), compared(statistics.median(grade(rows) for _ in rounds), MOST_MS)])
    print("\n".join(table(["language", "turns", "CPU ms a turn"], cells)))


if __name__ == "__main__":
    main()
