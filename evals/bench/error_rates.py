"""Counts false and missed recommendations of `ship` on simulated flows.

    python evals/bench/error_rates.py            # results/error_rates.md, about ten minutes on one core
    python evals/bench/error_rates.py --runs 200

Each run simulates conversations that all flows answer. One flow is 40 % cheaper; its true mean loss of quality is
exactly the margin (`false`, promised: .05 at most), or 0 (`power`). A rate above the promise by more than two standard
errors is marked with `!`. Worlds:

    spread      each turn is right with probability .8, with the difficulty of its conversation shared by all flows
    rare        one conversation in ten breaks as a whole, the others are equal
    collapse    small gains everywhere, and a collapse that makes the mean loss the margin
    uneven      conversations of 1 to 10 turns
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from agentlab.evals.compare.paired import make_turn_tables
from agentlab.evals.compare.ship import MARGIN, contrasts_of, winners

DECIDE = ("answer_f1", "cost_usd")
SIZES = (5, 10, 20, 30, 60, 120)
WORLDS = ("spread", "rare", "collapse", "uneven")
PAGE = Path(__file__).parents[2] / "results" / "error_rates.md"


def scores(
    world: str, difficulty: np.ndarray, lengths: np.ndarray, loss: float, random: np.random.Generator
) -> np.ndarray:
    """Return the quality of each turn of a flow that loses `loss` on average against one with a loss of 0."""
    turns = int(lengths.sum())
    if world in ("spread", "uneven"):
        # What it gets right is spoilt as often as the loss demands.
        right = random.random(turns) < np.repeat(difficulty, lengths)
        return (right & (random.random(turns) >= loss / 0.8)).astype(float)
    usual, gain = (1.0, 0.0) if world == "rare" or not loss else (0.9, 0.05)
    broken = np.repeat(random.random(len(lengths)) < (loss + gain) / (usual + gain) if loss else lengths < 0, lengths)
    return np.where(broken, 0.0, usual + gain)


def shipped(world: str, size: int, flows: int, loss: float, random: np.random.Generator) -> bool:
    """Return True if the cheap flow is shipped against flows that are equal to each other."""
    lengths = random.integers(1, 11, size) if world == "uneven" else np.full(size, 4)
    difficulty = random.beta(4, 1, size)
    keys = [(f"c{number}", turn, 0) for number, length in enumerate(lengths) for turn in range(length)]
    prices = random.lognormal(0, 0.4, len(keys))
    usual = 0.9 if world == "collapse" and loss else 1.0
    sides = []
    for flow in range(flows):
        quality = scores(world, difficulty, lengths, 0.0 if flow else loss, random)
        quality = quality if world in ("spread", "uneven") or not flow else np.full(len(keys), usual)
        sides.append(dict(zip(keys, map(dict, _rows(quality, prices * (1.0 if flow else 0.6))), strict=True)))
    tables = dict(zip(("cheap", *map(str, range(1, flows))), make_turn_tables(sides), strict=True))
    return winners(contrasts_of(tables, DECIDE)) == ["cheap"]


def _rows(quality: np.ndarray, cost: np.ndarray) -> list[list[tuple[str, float]]]:
    return [list(zip(DECIDE, pair, strict=True)) for pair in zip(quality.tolist(), cost.tolist(), strict=True)]


def rate(world: str, size: int, flows: int, loss: float, runs: int) -> float:
    random = np.random.default_rng([size, flows, WORLDS.index(world), round(1000 * loss)])
    return sum(shipped(world, size, flows, loss, random) for _ in range(runs)) / runs


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs a cell")
    runs = parser.parse_args().runs
    lines = [
        "# Error rates of the recommendation",
        "",
        f"`python evals/bench/error_rates.py` makes this page: {runs} simulated runs a cell, standard error at .05"
        f" {math.sqrt(0.05 * 0.95 / runs):.3f}.",
        "",
        f"*false*: how often `Ship` names a flow whose true loss is the margin, {MARGIN:.2f}; promised: .05 at most.",
        "*power*: how often it names the flow that is equally good and 40 % cheaper.",
        "",
        f"| world | flows | | {' | '.join(map(str, SIZES))} |",
        f"| --- | ---: | --- | {' | '.join('---:' for _ in SIZES)} |",
    ]
    for world in WORLDS:
        for flows in (2, 5):
            for name, loss in (("false", MARGIN), ("power", 0.0)):
                limit = 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)
                found = [rate(world, size, flows, loss, runs) for size in SIZES]
                cells = [f"{each:.3f}{' !' if name == 'false' and each > limit else ''}" for each in found]
                lines.append(f"| {world} | {flows} | {name} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
