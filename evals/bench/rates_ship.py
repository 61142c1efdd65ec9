"""Sections on `Ship X`: false and missed recommendations.

Every run simulates conversations that all flows answer. The first flow is 40 % cheaper. Worlds:

    spread      each turn is right with probability .8; all flows share the difficulty of a conversation
    wide        like spread, two turns; mean differences of conversations have a standard deviation of .36
    rare        one conversation in ten breaks as a whole, the others are equal
    collapse    small gains everywhere, and a collapse that makes the mean loss the margin
    uneven      conversations of 1 to 10 turns, otherwise like spread
    long        one conversation in a hundred has 60 turns, the others one; the long ones break
    others bad  like spread, but only the most expensive flow has the full quality
"""

from __future__ import annotations

from functools import partial

import numpy as np
from rates import Row, Section

from agentlab.evals.compare.paired import make_turn_tables
from agentlab.evals.compare.ship import contrasts_of, dominated_flows, winners
from agentlab.evals.stats.planning import MARGIN

SIZES = (5, 10, 20, 30, 60, 120)
NOISY = ("spread", "wide", "uneven", "others bad")
LONG, LONG_SHARE = 60, 0.01
MAX_LENGTH = {"uneven": 10, "long": LONG}
"""Turns of the longest conversation of the data set, which a sample may miss."""


def scores(
    world: str, difficulty: np.ndarray, lengths: np.ndarray, loss: float, random: np.random.Generator
) -> np.ndarray:
    """Return the quality of each turn of a flow that loses `loss` on average against one with a loss of 0."""
    turns = int(lengths.sum())
    if world in NOISY:
        # What it gets right is spoilt as often as the loss demands.
        right = random.random(turns) < np.repeat(difficulty, lengths)
        return (right & (random.random(turns) >= loss / 0.8)).astype(float)
    if world == "long":
        # Turns of long conversations are .377 of all.
        fraction = LONG_SHARE * LONG / (LONG_SHARE * LONG + 1 - LONG_SHARE)
        return np.where((np.repeat(lengths, lengths) == LONG) & (random.random(turns) < loss / fraction), 0.0, 1.0)
    usual, gain = (1.0, 0.0) if world == "rare" or not loss else (0.9, 0.05)
    broken = np.repeat(random.random(len(lengths)) < (loss + gain) / (usual + gain) if loss else lengths < 0, lengths)
    return np.where(broken, 0.0, usual + gain)


def lengths_of(world: str, size: int, random: np.random.Generator) -> np.ndarray:
    if world == "uneven":
        return random.integers(1, 11, size)
    if world == "long":
        return np.where(random.random(size) < LONG_SHARE, LONG, 1)
    return np.full(size, 2 if world == "wide" else 4)


def difficulty_of(world: str, size: int, random: np.random.Generator) -> np.ndarray:
    """Return the probability of a right turn, with mean .8, of each conversation."""
    return random.beta(*((3.41, 0.8525) if world == "wide" else (4, 1)), size)


def shipped(
    world: str, flows: int, qualities: int, loss: float, wanted: bool, size: int, random: np.random.Generator
) -> float:
    """Return 1 if the cheap flow is shipped, or if not `wanted` any flow that loses `loss` against another one."""
    lengths, difficulty = lengths_of(world, size, random), difficulty_of(world, size, random)
    keys = [(f"c{number}", turn, 0) for number, length in enumerate(lengths) for turn in range(length)]
    prices = random.lognormal(0, 0.4, len(keys))
    names = [*(f"quality_{number}" for number in range(qualities)), "cost_usd"]
    losing = range(flows - 1) if world == "others bad" else range(1)
    sides = []
    for flow in range(flows):
        columns = []
        for _ in range(qualities):
            quality = scores(world, difficulty, lengths, loss if flow in losing else 0.0, random)
            if world == "collapse" and loss and flow not in losing:
                quality = np.full(len(keys), 0.9)
            columns.append(quality)
        columns.append(prices * (1.0 if flow else 0.6))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        sides.append({key: dict(zip(names, row, strict=True)) for key, row in zip(keys, rows, strict=True)})
    tables = dict(zip(map(str, range(flows)), make_turn_tables(sides, longest=MAX_LENGTH.get(world, 0)), strict=True))
    best = winners(contrasts_of(tables, names))
    return float(len(best) == 1 and (best == ["0"] if wanted else int(best[0]) in losing))


def dominated(
    losses: tuple[float, float], price: float, wanted: bool, flows: int, size: int, random: np.random.Generator
) -> float:
    """Return 1 if any flow is called dominated, or if `wanted` the first one.

    The first flow loses `losses[0]` in the first quality and costs `price` times as much as the others, which lose
    `losses[1]` in the second quality.
    """
    lengths, difficulty = lengths_of("spread", size, random), difficulty_of("spread", size, random)
    keys = [(f"c{number}", turn, 0) for number, length in enumerate(lengths) for turn in range(length)]
    names, sides = ("quality_0", "quality_1", "cost_usd"), []
    for flow in range(flows):
        own = (0.0, losses[1]) if flow else (losses[0], 0.0)
        columns = [scores("spread", difficulty, lengths, loss, random) for loss in own]
        columns.append(random.lognormal(0, 0.4, len(keys)) * (1.0 if flow else price))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        sides.append({key: dict(zip(names, row, strict=True)) for key, row in zip(keys, rows, strict=True)})
    tables = dict(zip(map(str, range(flows)), make_turn_tables(sides), strict=True))
    lines = [*dominated_flows(contrasts_of(tables, names))]
    return float(any(line.startswith("0 ") for line in lines) if wanted else bool(lines))


def _dominated_rows() -> list[Row]:
    rows = []
    for flows in (2, 5, 12):
        for world, losses, price, wanted in (
            ("equal", (0.0, 0.0), 1.0, False),
            ("trade", (0.3, MARGIN), 1.5, False),
            ("worse", (0.3, 0.0), 1.5, True),
        ):
            kind, high = ("power", 1.0) if wanted else ("false", 0.05)
            simulate = partial(dominated, losses, price, wanted, flows)
            rows.append(Row((world, str(flows), kind), simulate, high=high))
    return rows


def _rows() -> list[Row]:
    rows = []
    for world, sizes, qualities in (
        ("spread", (2, 5, 12), 1),
        ("spread", (2,), 2),
        ("wide", (2,), 1),
        ("rare", (2, 5, 12), 1),
        ("collapse", (2, 5, 12), 1),
        ("uneven", (2, 5, 12), 1),
        ("long", (2,), 1),
        ("others bad", (5, 12), 1),
    ):
        for flows in sizes:
            names = world, str(flows), str(qualities)
            simulate = partial(shipped, world, flows, qualities)
            false = partial(simulate, MARGIN, False)
            rows.append(Row((*names, "false"), false, high=0.05))
            if world != "others bad":
                rows.append(Row((*names, "power"), partial(simulate, 0.0, True)))
    return rows


SECTIONS = (
    Section(
        "Ship X",
        f"*false*: `Ship` names a flow whose true loss is the margin, {MARGIN:.2f}; promised: .05 at most. *power*: it"
        " names the flow that is equally good and 40 % cheaper. Worlds are those of `evals/bench/rates_ship.py`.",
        ("world", "flows", "qualities", ""),
        SIZES,
        _rows(),
    ),
    Section(
        "Dominated",
        "*false*: any flow is called dominated although no flow is; promised: .05 at most. *trade*: the first flow is"
        f" worse by .3 in one quality and dearer, every other flow by {MARGIN:.2f} in another quality. *power*: the"
        " first flow is worse by .3 in one quality, dearer, and as good in another one.",
        ("world", "flows", ""),
        (20, 60, 120, 240),
        _dominated_rows(),
    ),
)
