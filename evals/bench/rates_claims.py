"""Sections on differences: claims of a mean, intervals, and conversations needed.

Worlds of differences, one conversation a row, positive is better; the true mean is known:

    even        normal noise around the mean
    binary      four turns a conversation, each right with probability .8 on both sides
    flips       one turn a conversation that goes right or wrong
    collapse    a gain of .09 in nine of ten conversations and a collapse to 0 in the tenth: the same mean; also noisy
    lognormal   costs against a constant with the same mean, standard deviation of the logarithm .5 or 1
    rare        one cost in twenty is six times the usual
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

import numpy as np
from rates import Row, Section

from agentlab.evals.compare.measure_verdict import Claim, MeasureVerdict
from agentlab.evals.compare.pairs import FlowSides, compare_turns
from agentlab.evals.stats.intervals import Column, mean_interval, score_ends
from agentlab.evals.stats.planning import more_to_exclude
from agentlab.evals.stats.statistics import margin_p_value

SIZES = (5, 8, 15, 20, 30, 60)
Draw = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Number of conversations -> values of both sides, shape (conversations, turns) each."""


def even(effect: float, sd: float, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    base = np.full((size, 1), 0.5)
    return base, base + (effect + random.normal(0, sd, (size, 1))).clip(-0.5, 0.5)


def binary(loss: float, turns: int, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    skill = random.beta(4, 1, (size, 1))
    a, b = ((random.random((size, turns)) < skill).astype(float) for _ in range(2))
    return a, b * (random.random((size, turns)) >= loss / 0.8)


def collapse(noise: float, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    usual, better = (level + random.normal(0, noise, (size, 1)) for level in (0.81, 0.9))
    return usual, np.where(random.random((size, 1)) < 0.1, 0.0, better)


def costs(sd: float, against: float, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return tuple(  # type: ignore[return-value]
        random.lognormal(-(each**2) / 2, each, (size, 1)) if each else np.ones((size, 1)) for each in (against, sd)
    )


def verdict_on(name: str, draw: Draw, size: int, random: np.random.Generator) -> MeasureVerdict:
    """Return the verdict on one measure, from the front door of a comparison."""
    sides = []
    for values in draw(size, random):
        turns = {(f"c{c:03}", t, 0): {name: float(v)} for c, row in enumerate(values) for t, v in enumerate(row)}
        sides.append(turns)
    pair = FlowSides("a", sides[0], "b", sides[1], ("a", "b"))
    return compare_turns([pair], [name], latency_is_primary=True).pairs[0][name]


WORDS = get_args(Claim)


def claimed(name: str, draw: Draw, size: int, random: np.random.Generator) -> float:
    """Return the position in `WORDS` of the words that claim the difference; 0 if none is claimed."""
    return WORDS.index(verdict_on(name, draw, size, random).claim)


def covers(
    values: Callable[[int, np.random.Generator], np.ndarray],
    mean: float,
    bounded: bool,
    size: int,
    random: np.random.Generator,
) -> float:
    """Return 1 if the interval of a mean has a width and contains the true mean."""
    drawn = values(size, random)
    sums, counts = drawn.sum(axis=1), np.full(size, float(drawn.shape[1]))
    _, interval = mean_interval(Column(sums, counts, score_ends(drawn) if bounded else None))
    return float(interval is not None and interval[0] < interval[1] and interval[0] <= mean <= interval[1])


def correlated(p: float, whole: bool, size: int, random: np.random.Generator) -> np.ndarray:
    """Return right and wrong turns: each conversation right or wrong as a whole, or each turn by itself."""
    return np.repeat(random.random((size, 1)) < p, 4, axis=1) * 1.0 if whole else (random.random((size, 4)) < p) * 1.0


def f1(size: int, random: np.random.Generator) -> np.ndarray:
    """Return F1-like scores with spikes at 0 and 1 and the mean .5."""
    kind = random.random((size, 4))
    return np.where(kind < 0.25, 0.0, np.where(kind > 0.75, 1.0, random.beta(2, 2, (size, 4))))


def lognormal(sd: float, size: int, random: np.random.Generator) -> np.ndarray:
    return random.lognormal(-(sd**2) / 2, sd, (size, 1))


def needed_power(draw: Draw, size: int, random: np.random.Generator) -> float:
    """Return 1 if a loss of .10 is excluded after the printed number of further conversations of equal flows."""
    a, b = draw(size, random)
    loss = (a - b).sum(axis=1)
    needed = more_to_exclude(loss, np.full(size, float(a.shape[1])), 0.1, 1.0)
    if needed is None:
        return 0.0
    more_a, more_b = draw(min(needed.high, 2000), random)
    whole = np.append(loss, (more_a - more_b).sum(axis=1))
    return float(margin_p_value(whole, np.full(len(whole), float(a.shape[1])), 1.0, 0.1) <= 0.05)


def _claim_rows() -> list[Row]:
    rows = []
    score, cost = "answer_f1", "input_tokens"
    equal: tuple[tuple[str, str, Draw, float], ...] = (
        ("even", score, partial(even, 0.0, 0.2), 0.06),
        ("binary", score, partial(binary, 0.0, 4), 0.06),
        ("flips", score, partial(binary, 0.0, 1), 0.06),
        ("collapse", score, partial(collapse, 0.0), 0.06),
        ("collapse, noisy", score, partial(collapse, 0.03), 0.06),
        ("lognormal .5", cost, partial(costs, 0.5, 0.0), 0.06),
        ("lognormal 1", cost, partial(costs, 1.0, 0.0), 0.08),
        ("both lognormal 1", cost, partial(costs, 1.0, 1.0), 0.06),
    )
    for world, name, draw, high in equal:
        simulate = partial(claimed, name, draw)
        for strength, words in enumerate(WORDS[1:], start=1):
            promised = high if strength > 1 else 1.0
            rows.append(Row((world, "equal", words), simulate, promised, seed=world, least=strength))
    effects: tuple[tuple[str, Draw], ...] = (
        ("even, effect .13, sd .25", partial(even, 0.13, 0.25)),
        ("binary, loss .13", partial(binary, 0.13, 4)),
        ("binary, loss .08", partial(binary, 0.08, 4)),
        ("even, effect .08, sd .25", partial(even, 0.08, 0.25)),
    )
    for world, draw in effects:
        simulate = partial(claimed, score, draw)
        for strength, words in enumerate(WORDS[1:], start=1):
            rows.append(Row((world, "differ", words), simulate, seed=world, least=strength))
    return rows


def _interval_rows() -> list[Row]:
    rows = []
    for p in (0.5, 0.9, 0.97, 0.995):
        for whole in (False, True):
            draw = partial(correlated, p, whole)
            names = f"right with probability {p}", "whole conversations" if whole else "each turn"
            rows.append(Row(names, partial(covers, draw, p, True), low=0.93))
    rows.append(Row(("F1", "each turn"), partial(covers, f1, 0.5, True), low=0.93))
    for sd in (0.5, 1.0):
        simulate = partial(covers, partial(lognormal, sd), 1.0, False)
        for low, what, sizes in ((0.90, "below 20", SIZES[:3]), (0.93, "from 20", SIZES[3:])):
            rows.append(Row((f"cost, lognormal {sd}", what), simulate, low=low, sizes=sizes))
    return rows


SECTIONS = (
    Section(
        "Claims of a difference",
        "Rates at which the software calls B different, by its words. If both means are equal, `on average` is false."
        " Its rate is .06 at most, and .08 for costs with a standard deviation of 1. It needs 30 conversations, of"
        " costs 20: a collapse that no conversation shows is excluded only by `whatever was not seen`. Differ: `more"
        " often` is the power of the sign flips. `on average` loses .10 of it at most at 30 conversations and an effect"
        " of .13, and .02 at 60 and .08. `whatever was not seen` promises no power: at 30 conversations it needs an"
        " observed difference of .105 or more, whatever the noise. Worlds are those of `evals/bench/rates_claims.py`.",
        ("world", "truth", "words"),
        SIZES,
        _claim_rows(),
    ),
    Section(
        "Intervals",
        "Rates at which an interval has a width and covers the true mean; promised .93 for scores from 5 conversations"
        " on, .90 for costs from 5 and .93 from 20. Costs below 20 conversations are printed as rough.",
        ("values", "what goes wrong together"),
        SIZES,
        _interval_rows(),
    ),
    Section(
        "N more conversations",
        "Rates at which a loss of .10 is excluded after the upper number of further conversations that is printed, if"
        " both flows are equally good; promised .75 to .90 on average for pilots of 10 and 20.",
        ("world",),
        (10, 20),
        [
            Row(("binary, four turns",), partial(needed_power, partial(binary, 0.0, 4)), low=0.75, high=0.90),
            Row(("flips, one turn",), partial(needed_power, partial(binary, 0.0, 1)), low=0.75, high=0.90),
            Row(("even, sd .3",), partial(needed_power, partial(even, 0.0, 0.3)), low=0.75, high=0.90),
        ],
    ),
)
