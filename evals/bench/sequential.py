"""Measures the error rates of the sequential gate on simulated flows, tested while they run.

    python evals/bench/sequential.py             # both tables, two minutes on one core
    python evals/bench/sequential.py --runs 500

The flows are those of `gate_power.py`. The first table compares every run with another run of the same rules, at the
planned looks:

    false alarms   nothing is worse, and a look raises an alarm; promised: at most .05
    found          answer_f1 of the first flow became worse by the loss, and a look raises an alarm for it
    fixed          the same runs played to the end, and tested once
    mean n         conversations that were played before the run stopped

In the second table a run stops as soon as a loss beyond the margin of .05 is excluded; it is tested after every
conversation. The table has the rate of passes for flows that lose as much as the margin (promised: at most .05) and
for flows that lose less, which is power.

A rate that misses its promise by more than two standard errors is marked with `!`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from gate_power import ALPHA, LOSSES, MARGIN, POWER, Shape, Turns, format_share, losses, table

from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.compare.sequential_gate import LOOKS
from agentlab.evals.stats.sequential import alarms, e_value_against_margin, planned_looks
from agentlab.evals.stats.sign_flips import SignFlips

CASES = (
    *((size, flows, measures, 0.0) for size in (60, 240) for flows, measures in ((1, 4), (5, 11))),
    *((60, flows, measures, loss) for loss in (0.1, 0.2, 0.3, 1.0) for flows, measures in ((1, 4), (5, 4), (5, 11))),
)
"""Numbers of conversations, flows and primary measures, and the loss; a loss of 1 makes every answer wrong."""
PASSING = (60, 120, 240)


def lost(turns: Turns, flows: int, measures: int, loss: float) -> np.ndarray:
    """Return losses: a row for each conversation, a column for each measure of a flow; the first is worse by `loss`."""
    columns: list[np.ndarray] = []
    for _ in range(flows):
        own: list[np.ndarray] = []
        while len(own) < measures:
            a, b = turns.play(), turns.play()
            if loss and not columns and not own:
                b[:, 0] = b[:, 0] - loss if loss < 1 else 0.0
            own += list((a - b).T * np.array([1, 1, 1, -1])[:, None])
        columns += own[:measures]
    sums = [np.bincount(turns.conversation_numbers, column, turns.shape.conversations) for column in columns]
    return np.column_stack(sums)


def planned(sums: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the conversation at which the run stops, and for each column if it is called worse."""
    looks = planned_looks(len(sums), LOOKS, ALPHA)
    for size, (p, raised) in zip(looks, alarms(sums, looks, len(sums), ALPHA), strict=True):
        if raised:
            return size, p < ALPHA
    return len(sums), np.zeros(sums.shape[1], dtype=bool)


def stops(size: int, flows: int, measures: int, loss: float, runs: int, random: np.random.Generator) -> list[str]:
    """Return a row of the first table."""
    hits, ends = np.zeros(2), 0
    for _ in range(runs):
        sums = lost(Turns(Shape("", size), random), flows, measures, loss)
        end, alarm = planned(sums)
        for position, result in enumerate([alarm, SignFlips(sums).test().p_adjusted < ALPHA]):
            hits[position] += result[0] if loss else result.any()
        ends += end
    allowed_shares = (0.0, 1.0) if loss else (0.0, ALPHA)
    result, fixed = (format_share(int(hit), runs, *allowed_shares) for hit in hits)
    what = f"{loss:.2f} lost" if loss else "false alarms"
    named = f"{size} x 4, {flows * measures} columns"
    return [what, named, result, fixed, f"{ends / runs:.1f}"]


def excludes(paired: PairedMeasure, seen: int, margin: float, reach: np.ndarray, widest: float) -> bool:
    return (
        e_value_against_margin(paired.sums[:seen], paired.counts[:seen], margin, reach[seen - 1], widest) >= 1 / ALPHA
    )


def passes(kind: str, lengths: str, runs: int, random: np.random.Generator) -> Iterator[str]:
    """Return the cells of the second table: the share of runs that pass and their mean stop, by size."""
    for size in PASSING:
        passed, ends = 0, 0
        for _ in range(runs):
            turns = Turns(Shape("", size, lengths), random)
            a, b, name = losses(kind, turns)
            paired = turns.pair(name, a, b)
            margin = MARGIN * float(a.mean()) if name == "cost_usd" else MARGIN
            reach, widest = np.full(size, paired.max_change[0]), float(paired.counts.max())
            if name == "cost_usd":
                # What may be lost is as much as the dearest takes, or as was seen on the way.
                dearest = float((np.bincount(paired.conversation_numbers, weights=a) / paired.counts).max())
                reach = np.maximum(np.maximum.accumulate(paired.sums / paired.counts), dearest)
            end = next((seen for seen in range(1, size + 1) if excludes(paired, seen, margin, reach, widest)), 0)
            passed += end > 0
            ends += end or size
        yield format_share(passed, runs, 0.0, 1.0 if kind in POWER else ALPHA)
        if kind in POWER:
            yield f"{ends / runs:.0f}"
        else:
            yield "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs for each share")
    arguments = parser.parse_args()
    started, runs = time.process_time(), arguments.runs
    random = np.random.default_rng(arguments.seed)
    head = ["answer_f1 of one flow", "conversations", "found", "fixed", "mean n"]
    table(head, (stops(*case, runs, random) for case in CASES))
    print()
    head = ["passed, of a loss at", "turns", *(cell for size in PASSING for cell in (str(size), "mean n"))]
    table(head, ([kind, of, *passes(kind, of, runs, random)] for kind in LOSSES for of in ("4", "1 to 60")))
    print(f"\n{runs} runs a share, seed {arguments.seed}, {time.process_time() - started:.0f} s of one core.")


if __name__ == "__main__":
    main()
