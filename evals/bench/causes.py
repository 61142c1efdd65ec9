"""Compares the rules for causes with a reader's labels: agreement and Cohen's kappa over all causes.

make gate                                                  # plays the recorded runs again, which were read
python evals/bench/causes.py results/gate
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

from agentlab.evals.compare.causes import causes
from agentlab.lab.run import open_run

LABELS = Path(__file__).parents[1] / "labels" / "causes.jsonl"
SEEN = "first"
"""Sample on which the rules were developed."""
NONE = "right"
"""Label of a turn that is poor by a measure but right for the reader."""


def kappa(pairs: list[tuple[str, str]]) -> float:
    """Return Cohen's kappa for any number of causes."""
    same = sum(a == b for a, b in pairs) / len(pairs)
    ours, theirs = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(ours[name] * theirs[name] for name in ours) / len(pairs) ** 2
    return (same - chance) / (1 - chance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="the folder with the runs, each under the name of its spec")
    folder = parser.parse_args().runs
    labels = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    by_rule = {}
    for name in dict.fromkeys(label["run"] for label in labels):
        for cause in causes(open_run(folder / name)):
            by_rule[name, cause.flow, cause.conversation, cause.turn] = cause.cause
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for label in labels:
        key = label["run"], label["flow"], label["conversation"], label["turn"]
        pair = by_rule.get(key, NONE), label["cause"]
        pairs[label["sample"]].append(pair)
        if pair[0] != pair[1]:
            print(f"{' '.join(map(str, key))}: by rule {pair[0]}, by reading {pair[1]}")
    pairs["held out"] = [pair for sample, both in pairs.items() if sample != SEEN for pair in both]
    for sample, both in pairs.items():
        same = sum(a == b for a, b in both)
        print(f"{sample} sample: {same} of {len(both)} turns agree ({same / len(both):.2f}), kappa {kappa(both):.2f}")


if __name__ == "__main__":
    main()
