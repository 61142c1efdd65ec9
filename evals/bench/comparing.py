"""Measures the time and memory of a comparison of many turns of several flows.

    python evals/bench/comparing.py                          # 10,000 conversations of one turn, five flows
    python evals/bench/comparing.py --conversations 2500 --turns 4

Makes a run folder with simulated values and times reading its rows, and then `agentlab compare`, which reads them
again, in seconds of a core. Memory is the most that the process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from agentlab.core.messages import Reply
from agentlab.core.trace import Totals, Trace
from agentlab.evals.compare.pairs import compare
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.rows import StoredScore, TurnRow, encode
from agentlab.evals.store.summary import summarise
from agentlab.lab.run import Run, open_run

METRICS = ("answer_f1", "answered", "exact_match", "lookup_accuracy", "refusal_accuracy", "semantic_similarity")
CATEGORIES = ("billing", "delivery", "returns", "small talk")
"""Categories of conversations, assigned in turn."""


def simulate(path: Path, conversations: int, turns: int, flows: int, epochs: int = 1, seed: int = 1) -> Run:
    """Write a run folder in which flows differ a little in skill and conversations in difficulty."""
    random = np.random.default_rng(seed)
    labels = [f"flow{number}" for number in range(flows)]
    names = [f"c{number:05}" for number in range(conversations)]
    header = {
        "run_id": path.name,
        "spec": {
            "name": "bench",
            "datasets": ["simulated"],
            "flows": [{"flow": label, "label": ""} for label in labels],
            "model": "simulated",
            "mode": "live",
            "limit": None,
            "epochs": epochs,
        },
        "datasets": {"simulated": {"sha256": "0", "conversations": conversations}},
        "graders": {"answer": "0"},
        "models": {"simulated": "simulated"},
    }
    folder = RunFolder.create(path, header)
    rows: list[TurnRow] = []
    difficulty = random.normal(0, 1, conversations)
    for position, label in enumerate(labels):
        for number, name in enumerate(names):
            for epoch in range(epochs):
                for turn in range(turns):
                    skill = 1 / (1 + np.exp(difficulty[number] - 0.2 * position + random.normal(0, 0.5)))
                    key = {
                        "flow": label,
                        "dataset": "simulated",
                        "conversation": name,
                        "turn": turn,
                        "epoch": epoch,
                    }
                    key["category"] = CATEGORIES[number % len(CATEGORIES)]
                    calls = int(random.integers(1, 4))
                    totals = Totals(llm_calls=calls, input_tokens=int(random.lognormal(6, 0.5)), output_tokens=40)
                    fields = {"user": "?", "reply": Reply(text="!"), "error": None, "wall_seconds": 0.1, "take": 0}
                    fields |= {"latency_s": 0.1, "memory_tokens": 0, "memory_unavailable": 0, "phases": {}}
                    values = [float(np.clip(random.normal(skill, 0.3), 0, 1)), *(random.random(5) < skill).tolist()]
                    of = zip(METRICS, values, strict=True)
                    scores = {metric: StoredScore(value, "") for metric, value in of}
                    rows.append(TurnRow(**key, **fields, totals=totals, scores=scores))
    (path / "turns.jsonl").write_text("".join(encode(row) + "\n" for row in rows))
    fold = Fold(names)
    for row in rows:
        fold.add(Trace(*row.trial), [row])
    folder.write_json("summary.json", summarise(folder.header, fold.flows, complete=True))
    return open_run(path)


def megabytes() -> float:
    """Return the peak memory of the process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--flows", type=int, default=5)
    parser.add_argument("--run", type=Path, help="folder of the run; an existing run is used again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = arguments.run or Path(scratch) / "run"
        if not (path / "summary.json").exists():
            simulate(path, arguments.conversations, arguments.turns, arguments.flows)
            if arguments.run:
                print(f"made {path}; run this again to measure")
                return
        started = time.process_time()
        run = open_run(path)
        assert run.turn_values
        loaded, before = time.process_time(), megabytes()
        compare(run)
        seconds = {"loading": loaded - started, "comparing": time.process_time() - loaded, "MB before": before}
        print(json.dumps({name: round(value, 2) for name, value in (seconds | {"MB": megabytes()}).items()}))


if __name__ == "__main__":
    main()
