"""Measures the error rates of the gate on simulated flows: false alarms, detected losses and passed losses.

    python evals/bench/gate_power.py             # both tables, about three minutes on one core
    python evals/bench/gate_power.py --runs 1000

Every row simulates pairs of runs: the same conversations, each answered twice by the same random rules. Four measures
are primary: an F1 with spikes at 0 and 1, two binary ones, and a lognormal cost. Both runs share the difficulty of a
conversation. Each run has its own effect on a whole conversation (an early mistake spoils the rest) and on a turn.

    false alarms   pairs with the verdict "worse" for any measure although nothing changed; promised: at most .05
    found          pairs with the verdict "worse" for answer_f1 after every turn became worse by exactly the detectable
                   difference (80 % power); promised: .75 to .85. `elsewhere`: the same in another pair of such runs
    in spots       the same elsewhere, but some turns fall to 0 until the mean loss is that size: not promised

The second table has

    passed         pairs with a true mean loss of at least the margin and the verdict "pass"; promised: at most .05. For
                   a loss below the margin the verdict may be "pass", and should be: that is power

A rate that misses its promise by more than two standard errors is marked with `!`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agentlab.evals.compare.family import MeasureOutcome, run_family_test
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.store.measures import measure

ALPHA = 0.05
MARGIN = 0.05
NAMES = ("answer_f1", "refusal_accuracy", "lookup_accuracy", "cost_usd")
MAX_TURNS = 60


@dataclass(frozen=True)
class Shape:
    name: str
    conversations: int
    lengths: str = "4"
    """`4`, `1 to 60`, or `one has half`: of 4 turns all but one, which has as many as the rest."""
    carry: float = 0.5
    """Standard deviation, in logits, of the effect of a run on a whole conversation."""
    tail: float = 0.4
    """Standard deviations of the logarithm of the cost: between conversations, and between turns."""
    flows: int = 1


SHAPES = (
    *(Shape("the usual", conversations) for conversations in (5, 8, 12, 20, 40, 60)),
    *(Shape("uneven lengths", conversations, "1 to 60") for conversations in (8, 12, 20, 40)),
    Shape("uneven lengths", 20, "one has half"),
    Shape("conversations stick together", 20, carry=2.0),
    Shape("heavy tails", 20, carry=1.0, tail=1.2),
    Shape("five flows", 12, flows=5),
)


class Turns:
    """Turns of simulated conversations, and simulated runs of one flow over them."""

    def __init__(self, shape: Shape, random: np.random.Generator) -> None:
        self.shape, self.random = shape, random
        size = shape.conversations
        lengths = random.integers(1, MAX_TURNS + 1, size) if shape.lengths == "1 to 60" else np.full(size, 4)
        if shape.lengths == "one has half":
            lengths[0] = 4 * (size - 1)
        self.conversation_numbers = np.repeat(np.arange(size), lengths)
        self.difficulty = random.normal(0.3, 1.0, size)
        self.keys = tuple((f"c{code}", number, 0) for number, code in enumerate(self.conversation_numbers))

    def play(self) -> np.ndarray:
        """Return one run: a row for each turn, a column for each measure."""
        random, turns = self.random, len(self.conversation_numbers)
        carried = self.difficulty + random.normal(0, self.shape.carry, len(self.difficulty))
        skill = 1 / (1 + np.exp(-(carried[self.conversation_numbers] + random.normal(0, 0.7, turns))))
        kind = random.random(turns)
        # Token F1 is 0 where the answer is missed or declined, 1 where it is repeated to the word.
        partly = random.beta(2, 4 - 2 * skill)
        f1 = np.where(kind < 0.5 * (1 - skill), 0.0, np.where(kind > 1 - 0.3 * skill, 1.0, partly))
        slow = random.normal(0, self.shape.tail, len(self.difficulty))[self.conversation_numbers]
        cost = np.exp(slow + random.normal(0, self.shape.tail, turns)) / 1000
        return np.column_stack([f1, random.random(turns) < skill, random.random(turns) < skill, cost])

    def paired(self, a: np.ndarray, b: np.ndarray) -> list[PairedMeasure]:
        return [self.pair(name, x, y) for name, x, y in zip(NAMES, a.T, b.T, strict=True)]

    def pair(self, name: str, a: np.ndarray, b: np.ndarray) -> PairedMeasure:
        size, clusters = self.shape.conversations, self.conversation_numbers
        return PairedMeasure(measure=measure(name), keys=self.keys, a=a, b=b, conversation_numbers=clusters, size=size)


def measure_verdict(paired: PairedMeasure, outcome: MeasureOutcome) -> MeasureVerdict:
    return MeasureVerdict(flow="flow", paired=paired, relative_margin=MARGIN, alpha=ALPHA, **outcome._asdict())


def verdicts_on(members: list[PairedMeasure]) -> list[MeasureVerdict]:
    tested = run_family_test(members, ALPHA, two_sided=False)
    return [measure_verdict(m, outcome) for m, outcome in zip(members, tested, strict=True)]


def worse(turns: Turns, pairs: list[tuple[np.ndarray, np.ndarray]], loss: float, spots: bool = False) -> bool:
    """Return True if the gate finds answer_f1 of the first flow worse after this loss; values may leave their range."""
    a, b = pairs[0]
    changed = b.copy()
    changed[:, 0] -= loss
    if spots:
        changed[:, 0] = np.where(turns.random.random(len(b)) < loss / max(b[:, 0].mean(), loss), 0.0, b[:, 0])
    members = [paired for x, y in [(a, changed), *pairs[1:]] for paired in turns.paired(x, y)]
    return verdicts_on(members)[0].kind == "worse"


def format_share(hits: int, of: int, low: float, high: float) -> str:
    """Format a share; `!` marks one that misses its promise by more than two standard errors."""
    if not of:
        return "-"
    error = 2 * math.sqrt(max(low * (1 - low), high * (1 - high)) / of)
    is_kept = low - error <= hits / of <= high + error
    return f"{hits / of:.3f}" + ("" if is_kept else " !")


def study(shape: Shape, runs: int, random: np.random.Generator) -> list[str]:
    """Return a row of the first table."""
    alarms = detected = elsewhere = spots = 0
    stated: list[float] = []
    for _ in range(runs):
        turns = Turns(shape, random)
        pairs = [(turns.play(), turns.play()) for _ in range(shape.flows)]
        without = verdicts_on([paired for a, b in pairs for paired in turns.paired(a, b)])
        alarms += any(j.kind == "worse" for j in without)
        loss = without[0].detectable_loss
        if loss is not None:
            stated.append(loss)
            again = [(turns.play(), turns.play()) for _ in range(shape.flows)]
            detected += worse(turns, pairs, loss)
            elsewhere += worse(turns, again, loss)
            spots += worse(turns, again, loss, spots=True)
    seen = f"{np.median(stated):.2f}" if len(stated) > runs / 10 else "none"
    of = len(stated) if len(stated) > runs / 10 else 0
    cells = [shape.name, f"{shape.conversations} x {shape.lengths}", format_share(alarms, runs, 0.0, ALPHA), seen]
    cells += [format_share(hits, of, 0.75, 0.85) for hits in (detected, elsewhere)]
    return [*cells, f"{spots / of:.3f}" if of else "-"]


def losses(kind: str, turns: Turns) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the values of both sides for each turn, and the measure's name; `kind` sets the true loss."""
    random, clusters = turns.random, turns.conversation_numbers
    size = turns.shape.conversations
    # A little noise, or what did not break would be `unchanged`, which is not called a pass.
    ones = 1 - random.uniform(0, 1e-3, len(clusters))
    if kind.endswith("break"):
        broken = random.random(size) < float(kind.split()[0]) / 100
        return ones, (1 - broken)[clusters], "answer_f1"
    if kind == "10 % lose half":
        return ones, (1 - 0.5 * (random.random(size) < 2 * MARGIN))[clusters], "answer_f1"
    if "noise" in kind:
        loss, spread = (0.0, 0.1) if kind.startswith("no loss") else (MARGIN, 0.3)
        changed = np.clip(random.normal(loss, spread, size), -1, 1)[clusters]
        return 0.5 + 0.5 * changed, 0.5 - 0.5 * changed, "answer_f1"
    if kind == "5 % lost, turns flip":
        changed = random.choice([1.0, 0.0, -1.0], len(clusters), p=[0.15 + MARGIN, 0.7 - MARGIN, 0.15])
        return (changed > 0) + 0.0, (changed < 0) + 0.0, "answer_f1"
    cost = [
        np.exp(random.normal(0, 0.4, size))[clusters] * np.exp(random.normal(0, 0.4, len(clusters))) for _ in range(2)
    ]
    return cost[0], cost[1] * (1 + MARGIN), "cost_usd"


POWER = ("no loss, noise of .1", "3 % break")
LOSSES = (
    *POWER,
    "5 % break",
    "6 % break",
    "10 % lose half",
    "5 % lost, noise of .3",
    "5 % lost, turns flip",
    "5 % dearer, lognormal",
)
SIZES = (5, 8, 12, 20, 40, 60, 120)


def passes(kind: str, lengths: str, runs: int, random: np.random.Generator) -> Iterator[str]:
    """Return the cells of the second table: the share of runs that pass, by number of conversations."""
    for size in SIZES:
        passed = 0
        for _ in range(runs):
            turns = Turns(Shape("", size, lengths), random)
            a, b, name = losses(kind, turns)
            passed += measure_verdict(turns.pair(name, a, b), MeasureOutcome(None, None, 1)).kind == "pass"
        yield format_share(passed, runs, 0.0, 1.0 if kind in POWER else ALPHA)


def table(head: list[str], rows: Iterator[list[str]]) -> None:
    print(f"| {' | '.join(head)} |\n| --- | --- |{' ---: |' * (len(head) - 2)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200, help="simulated pairs of runs for each share")
    arguments = parser.parse_args()
    started, runs = time.process_time(), arguments.runs
    random = np.random.default_rng(arguments.seed)
    head = ["simulated flow", "conversations x turns", "false alarms", "can see", "found", "elsewhere", "in spots"]
    table(head, (study(shape, runs, random) for shape in SHAPES))
    print()
    rows = ([kind, of, *passes(kind, of, runs, random)] for kind in LOSSES for of in ("4", "1 to 60", "one has half"))
    table(["passed, of a loss at", "turns", *map(str, SIZES)], rows)
    print(f"\n{runs} pairs a share, seed {arguments.seed}, {time.process_time() - started:.0f} s of one core.")


if __name__ == "__main__":
    main()
