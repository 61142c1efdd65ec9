"""Sequential tests: planned looks for an alarm, and e-values that may be checked after every conversation.

A conversation is one observation. `sums` has the shape (n, J): a row per conversation in the order of the run, a column
per measure of a flow, with the sums of the turns' losses. `counts` (n, J) holds the numbers of turns. The order is
fixed before the run starts.

There are two tests. Each keeps its level although the run stops at the first verdict:

* `alarms` asks if anything is worse. It is a group-sequential sign-flip test by maxT over all columns. Each look may
  spend `alpha_spent`, after Lan and DeMets (Discrete sequential boundaries for clinical trials, Biometrika 1983).
* `e_value_against_margin` and `anytime_upper_bound` bound the mean loss. They bet against it, after Waudby-Smith and
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
"""Draws of the signs of all conversations; the observation is one of them."""
BLOCK = 512
"""Conversations whose signs are drawn at once, 20 MB."""
MIN_ALARM_DRAWS = 4
"""Minimum number of draws beyond the alarm threshold at the first look."""
FIRST_LOOK_SHARE, SPENDING_POWER = 0.02, 3.0
"""Spending of alpha: the share at the first look, and the power of the share of conversations for the rest.

Only a collapse crosses the first fiftieth. Chosen by simulation (flows of `evals/bench/sequential.py`, 60
conversations, a loss in one of 4, 20 and 55 columns). With eight looks, a loss of .20 stops the run after 25, 30 and 33
conversations. A loss of .10 is detected 3, 5 and 3 points less often than with one look at the end. A power of 2.5
needs 24, 29 and 32 conversations and costs 4, 5 and 4 points; 1.6 at five looks needs 24, 29 and 33 and costs 5, 7 and
5.
"""
LAST_EARLY_LOOK = 0.75
"""Share of the conversations at the last look before the end; a later one saves too little."""
STAKES = np.array([1.0, 0.8, 0.55, 0.3, 0.15, 0.07])
"""Stakes on each conversation, as shares of the largest stake that cannot ruin."""
STAKE_WEIGHTS = np.array([0.75, 0.05, 0.05, 0.05, 0.05, 0.05])
"""Shares of the capital per stake. The largest stake gets most, since it is the best one if nothing varies."""


def alpha_spent(alpha: float, fraction: float) -> float:
    """Return the part of `alpha` that may be spent after this `fraction` of the conversations.

    It is the power family of Kim and DeMets (Design and analysis of group sequential tests based on the type I error
    spending rate function, Biometrika 1987).
    """
    return float(alpha * (FIRST_LOOK_SHARE + (1 - FIRST_LOOK_SHARE) * min(1.0, fraction) ** SPENDING_POWER))


def planned_looks(conversations: int, looks: int, alpha: float) -> list[int]:
    """Return the numbers of conversations at which to look: `looks` times, denser at first, the last one at the end.

    If n conversations all got worse the p-value of their signs is 2 ** -n. The first look is the earliest one at which
    this p-value can be below the alpha spent by then.
    """
    smallest = ((n, MIN_ALARM_DRAWS * max(2.0**-n, 1 / DRAWS)) for n in range(1, conversations))
    first = next((n for n, p in smallest if p <= alpha_spent(alpha, n / conversations)), conversations)
    sizes = np.geomspace(first, max(first, LAST_EARLY_LOOK * conversations), looks - 1)
    return sorted({*(round(float(size)) for size in sizes), conversations})


def alarms(
    sums: np.ndarray, looks: Sequence[int], conversations: int, alpha: float
) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield at each look p-values of the columns, shape (J,), for the family and all looks so far, and the alarm.

    `looks` are the numbers of conversations at which to look, `conversations` is their maximum. A conversation keeps
    its sign in a draw at every look, and the observation is one of the draws. So at each look at most `alpha_spent` of
    the draws have raised an alarm, for any noise.

    p orders the outcomes by the look at which they stop (Tsiatis, Rosner and Mehta, Biometrics 1984). It is below alpha
    for a column that raises the alarm. Without an alarm it has no meaning before the last look.
    """
    random, null_sums = np.random.default_rng(SEED), np.zeros((DRAWS, sums.shape[1]))
    alive = np.ones(DRAWS, dtype=bool)
    for before, size in pairwise((0, *looks)):
        for start in range(before, size, BLOCK):
            null_sums += _sums_under_signs(sums[start : min(size, start + BLOCK)], random)
        norms = np.sqrt((sums[:size] ** 2).sum(axis=0))
        units = null_sums[:, norms > 0] / norms[norms > 0]
        largest = units.max(axis=1, initial=0.0)
        ordered, crossed, p = np.sort(largest[alive]), int((~alive).sum()), np.ones(len(norms))
        critical = _critical(ordered, math.floor(alpha_spent(alpha, size / conversations) * DRAWS + 1e-9) - crossed)
        p[norms > 0] = (crossed + len(ordered) - np.searchsorted(ordered, units[0] - TIE)) / DRAWS
        yield p, bool(alive[0] and largest[0] >= critical)
        alive &= largest < critical


def _sums_under_signs(part: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the sums of some conversations under the signs of each draw, shape (DRAWS, J); the first is observed."""
    # Each conversation takes whole 32-bit words, so its signs do not depend on the block size.
    words = random.bytes(-(-DRAWS // 32) * 4 * len(part))
    bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8).reshape(len(part), -1), axis=1, count=DRAWS)
    bits[:, 0] = 0
    # Single precision is fast, and exact enough after scaling.
    scale = np.abs(part).max(axis=0)
    units = (part / np.where(scale > 0, scale, 1.0)).astype(np.float32)
    null_sums: np.ndarray = (units.sum(axis=0) - 2 * (bits.T.astype(np.float32) @ units)) * scale
    return null_sums


def _critical(ordered: np.ndarray, allowed: int) -> float:
    """Return the least value that at most `allowed` of the ascending values reach; infinity if there is none."""
    if not 0 < allowed < len(ordered):
        return math.inf if allowed <= 0 else -math.inf
    # Values that tie with the first one that must not cross do not cross either.
    above = ordered[ordered > ordered[-1 - allowed] + TIE]
    return float(above[0]) - TIE / 2 if len(above) else math.inf


def e_value_against_margin(
    sums: np.ndarray, counts: np.ndarray, margin: float, max_loss: float, max_turns: float
) -> float:
    """Return the largest capital so far of a bet of 1 against "the mean loss per turn is `margin` or more".

    `sums` and `counts` have shape (n,). At an e-value of 1 / alpha the claim is excluded at level alpha, at any time
    (Ville's inequality). `max_loss` is the largest possible loss of a turn, `max_turns` the largest number of turns of
    a conversation. Both are known before the run.

    Each conversation multiplies the capital by 1 + stake * (margin * turns - loss) / ((max_loss - margin) * max_turns).
    The mean of this factor is at most 1 if the mean loss is at least the margin. The capital is divided over several
    stakes and never moved between them.
    """
    if margin >= max_loss:
        return math.inf
    gained = (margin * counts - sums) / ((max_loss - margin) * max_turns)
    with np.errstate(divide="ignore"):
        capital = np.cumsum(np.log(np.maximum(1 + gained[:, None] * STAKES, 0.0)), axis=0)
    return float((np.exp(np.minimum(capital, 700.0)) @ STAKE_WEIGHTS).max(initial=1.0))


def anytime_upper_bound(sums: np.ndarray, counts: np.ndarray, max_loss: float, max_turns: float, alpha: float) -> float:
    """Return the upper bound of the mean loss per turn at level 1 - alpha, valid at all times together.

    Without conversations it is `max_loss`. `e_value_against_margin` excludes all margins above the bound, because the
    capital grows with the margin.
    """
    has = counts > 0
    sums, counts = sums[has], counts[has]
    low, high = -max_loss if not len(sums) else float(min(-max_loss, (sums / counts).min())), max_loss
    for _ in range(40):
        middle = (low + high) / 2
        excluded = e_value_against_margin(sums, counts, middle, max_loss, max_turns) >= 1 / alpha
        low, high = (low, middle) if excluded else (middle, high)
    return high
