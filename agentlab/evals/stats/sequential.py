"""Statistics that may be looked at while conversations come in: planned looks for an alarm, bets for everything else.

A conversation is one observation: `sums` has the shape (n, J), the losses that its turns sum up to, a row a
conversation in the order they were folded in, a column a measure of a flow; `counts` (n, J) says how many turns. That
order is fixed before the first of them is played.

Two tests, each of which keeps its level though the run stops when one of them is decided:

* `alarms`: is anything worse? A group-sequential sign-flip test by maxT over all columns. What may be spent by a look
  is `alpha_spent`, after Lan and DeMets (Discrete sequential boundaries for clinical trials, Biometrika 1983).
* `e_value_against_margin` and `bounds`: how large is the mean loss at most, and at least? Bets against it, after
  Waudby-Smith and
  Ramdas (Estimating means of bounded random variables by betting, JRSS B 2024, arXiv 2010.09686).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from agentlab.evals.stats.sign_flips import TIE

SEED = 0
DRAWS = 10_000
"""Of the signs of all conversations; one of them is what was observed."""
BLOCK = 512
"""Conversations whose signs are drawn at once: 20 MB."""
ROOM = 4
"""The first look is worth it where so many draws as clear as the clearest may raise an alarm."""
FIRST_LOOK_SHARE, LATE = 0.02, 3.0
"""How alpha is spent: a fiftieth at the first look, which only a collapse crosses, the rest as this power of the share.

Chosen by simulation (flows of `evals/bench/sequential.py`, 60 conversations, a loss in one of 4, 20 and 55 columns).
Looked at eight times, a loss of .20 stops the run after 25, 30 and 33 of them, and a loss of .10 is found 3, 5 and 3
points less often than at the end alone. A power of 2.5 takes 24, 29 and 32 and costs 4, 5 and 4 points; 1.6 at five
looks took 24, 29 and 33 and cost 5, 7 and 5.
"""
LAST_BUT_ONE = 0.75
"""The share of the conversations after which it is looked for the last time before the end: later saves too little."""
STAKES = np.array([1.0, 0.8, 0.55, 0.3, 0.15, 0.07])
"""What is put on each conversation, as shares of what may be lost without ruin."""
STAKE_WEIGHTS = np.array([0.75, 0.05, 0.05, 0.05, 0.05, 0.05])
"""How the capital is divided over the stakes. Most is on the largest, which is the best where nothing varies."""


def alpha_spent(alpha: float, share: float) -> float:
    """Of `alpha`, what may be spent once this `share` of the conversations is played.

    The power family of Kim and DeMets (Design and analysis of group sequential tests based on the type I error
    spending rate function, Biometrika 1987).
    """
    return float(alpha * (FIRST_LOOK_SHARE + (1 - FIRST_LOOK_SHARE) * min(1.0, share) ** LATE))


def planned_looks(conversations: int, looks: int, alpha: float) -> list[int]:
    """After how many conversations the alarm is looked for: `looks` times, close together at first, once at the end.

    Signs of n conversations that all became worse have a p-value of 2 ** -n, and it is first looked where that is
    below what may be spent by then.
    """
    clearest = ((n, ROOM * max(2.0**-n, 1 / DRAWS)) for n in range(1, conversations))
    first = next((n for n, p in clearest if p <= alpha_spent(alpha, n / conversations)), conversations)
    places = np.geomspace(first, max(first, LAST_BUT_ONE * conversations), looks - 1)
    return sorted({*(round(float(place)) for place in places), conversations})


def alarms(
    sums: np.ndarray, looks: Sequence[int], conversations: int, alpha: float
) -> Iterator[tuple[np.ndarray, bool]]:
    """At each look, of each column a p-value for the whole family and all looks so far, and whether there is an alarm.

    `looks`: the sizes at which it is looked; `conversations`: the most that are played. The same conversation has the
    same sign in a draw at every look, and what was observed is one of the draws; so a share of at most `alpha_spent`
    of them
    has raised an alarm by each look, whatever the noise looks like. p orders what could have happened by the look at
    which it stops (Tsiatis, Rosner and Mehta, Biometrics 1984); it is below alpha where the column raises the alarm,
    and means nothing before the last look where none does.
    """
    random, under = np.random.default_rng(SEED), np.zeros((DRAWS, sums.shape[1]))
    alive = np.ones(DRAWS, dtype=bool)
    for before, size in pairwise((0, *looks)):
        for start in range(before, size, BLOCK):
            under += _under_signs(sums[start : min(size, start + BLOCK)], random)
        norms = np.sqrt((sums[:size] ** 2).sum(axis=0))
        units = under[:, norms > 0] / norms[norms > 0]
        largest = units.max(axis=1, initial=0.0)
        among, crossed, found = np.sort(largest[alive]), int((~alive).sum()), np.ones(len(norms))
        critical = _critical(among, math.floor(alpha_spent(alpha, size / conversations) * DRAWS + 1e-9) - crossed)
        found[norms > 0] = (crossed + len(among) - np.searchsorted(among, units[0] - TIE)) / DRAWS
        yield found, bool(alive[0] and largest[0] >= critical)
        alive &= largest < critical


def _under_signs(part: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The sums of some conversations under the signs of each draw, shape (DRAWS, J); the first is what was observed."""
    # Whole words a conversation: so its signs do not depend on how many are drawn at once.
    words = random.bytes(-(-DRAWS // 32) * 4 * len(part))
    bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8).reshape(len(part), -1), axis=1, count=DRAWS)
    bits[:, 0] = 0
    # Single precision is fast, and exact enough in units of these conversations.
    scale = np.abs(part).max(axis=0)
    units = (part / np.where(scale > 0, scale, 1.0)).astype(np.float32)
    under: np.ndarray = (units.sum(axis=0) - 2 * (bits.T.astype(np.float32) @ units)) * scale
    return under


def _critical(ordered: np.ndarray, allowed: int) -> float:
    """The least value that at most `allowed` of these, in ascending order, reach; infinity where none is."""
    if not 0 < allowed < len(ordered):
        return math.inf if allowed <= 0 else -math.inf
    # Ties with the first that may not cross are none of those that cross.
    above = ordered[ordered > ordered[-1 - allowed] + TIE]
    return float(above[0]) - TIE / 2 if len(above) else math.inf


def e_value_against_margin(sums: np.ndarray, counts: np.ndarray, margin: float, reach: float, widest: float) -> float:
    """The most that a bet against "the mean loss a turn is `margin` or more" has made of 1 so far; shape (n,) each.

    At 1 / alpha or more that is excluded at level alpha, at any time (Ville's inequality). `reach` is the most that a
    turn can lose, `widest` the most turns that a conversation has, and both are known beforehand. Each conversation
    multiplies the capital by 1 + stake * (margin * turns - loss) / ((reach - margin) * widest), whose mean is at most 1
    where the mean loss is the margin or more; the capital is divided over several stakes and never moved between them.
    """
    if margin >= reach:
        return math.inf
    gained = (margin * counts - sums) / ((reach - margin) * widest)
    with np.errstate(divide="ignore"):
        capital = np.cumsum(np.log(np.maximum(1 + gained[:, None] * STAKES, 0.0)), axis=0)
    return float((np.exp(np.minimum(capital, 700.0)) @ STAKE_WEIGHTS).max(initial=1.0))


def anytime_upper_bound(sums: np.ndarray, counts: np.ndarray, reach: float, widest: float, alpha: float) -> float:
    """The mean loss a turn is at most this at level 1 - alpha, at all times together; `reach` where nothing is known.

    All margins that `e_value_against_margin` excludes lie above it, for the capital grows with the margin.
    """
    has = counts > 0
    sums, counts = sums[has], counts[has]
    low, high = -reach if not len(sums) else float(min(-reach, (sums / counts).min())), reach
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (low, middle)
            if e_value_against_margin(sums, counts, middle, reach, widest) >= 1 / alpha
            else (middle, high)
        )
    return high
