"""How many conversations it takes: to show a loss, to exclude one, to see a difference that is worth seeing.

`sums` and `counts` have the shape (C,), a number a conversation: the sum of its turns' losses, and how many turns it
has. `level` is the one-sided level that is left after sharing it within a family.
"""

from __future__ import annotations

import math

import numpy as np

from agentlab.evals.stats.statistics import NORMAL, margin_p_value, students_t

POWER = 0.8
MAX_CONVERSATIONS = 100_000
"""More than that is no advice."""
FEWEST = 8
"""Conversations, of which residuals say too little to state a loss; counted as Kish does (Survey Sampling, 1965): turns
** 2 / sum of the turns of each ** 2, so that one that outweighs the rest counts for little more than itself."""


def standard_error(sums: np.ndarray, counts: np.ndarray) -> float:
    """Of the mean a turn, from the residuals of at least two conversations.

    A conversation pulls the mean towards itself, so what is left of it is widened by as much, as in CR2.
    """
    turns = float(counts.sum())
    left = sums - counts * (sums.sum() / turns)
    return math.sqrt(float((left**2 / (1 - np.minimum(counts / turns, 1 - 1e-9))).sum())) / turns


def visible(sums: np.ndarray, counts: np.ndarray, level: float) -> float | None:
    """The loss a turn that, on all turns alike, a sign-flip test at `level` finds in `POWER` of such comparisons.

    (t at the level + z at the power) * standard error, after arXiv 2411.00640, equation 9, with Student's t for the
    few conversations that our sets have. None where nothing varies, or the conversations are too few to say or to show
    anything.
    """
    conversations, turns = int((counts > 0).sum()), float(counts.sum())
    if turns**2 <= FEWEST * float((counts**2).sum()) or 2.0**-conversations > level:
        return None
    error = standard_error(sums, counts)
    found = (students_t(1 - level, conversations - 1) + NORMAL.inv_cdf(POWER)) * error
    return found if found > 1e-9 else None


def to_see(sums: np.ndarray, counts: np.ndarray, level: float, difference: float) -> int | None:
    """How many conversations like these find a true difference in `POWER` of comparisons; None where nothing varies.

    (z at the level + z at the power)**2 * variance of the conversations' means / difference**2, after arXiv 2411.00640,
    equation 9; two decimal digits are more than it knows, so it is rounded up to one.
    """
    has = counts > 0
    if not sums.any() or has.sum() < 2:
        return None
    means = sums[has] / counts[has]
    needed = (NORMAL.inv_cdf(1 - level) + NORMAL.inv_cdf(POWER)) ** 2 * float(np.var(means, ddof=1)) / difference**2
    # Signs cannot reject before so many conversations differ.
    needed = max(needed, math.log2(1 / level))
    digit = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return int(math.ceil(needed / digit) * digit)


def conversations_if_equal(sums: np.ndarray, counts: np.ndarray, margin: float, level: float) -> tuple[int, int] | None:
    """Return how many conversations exclude a mean loss of `margin` in `POWER` of comparisons of two equal flows.

    The first number takes the standard deviation of the conversations' losses as it is, the second its upper limit at
    80 % (Browne, On the use of a pilot sample for sample size determination, 1995). Both solve
    (margin - 1 / (C + 1)) * sqrt(C) / sqrt(sd ** 2 + 1 / (C + 1)) = z at the level + z at the power, which is the bound
    of `loss_bound` in the limit of a normal mean. None with under two conversations, or beyond `MAX_CONVERSATIONS`.
    """
    if len(sums) < 2:
        return None
    sd = float(np.std(sums / counts.mean(), ddof=1))
    freedom = len(sums) - 1
    # The chi-squared quantile by Wilson and Hilferty (1931).
    low = freedom * (1 - 2 / (9 * freedom) + NORMAL.inv_cdf(1 - POWER) * math.sqrt(2 / (9 * freedom))) ** 3
    target = NORMAL.inv_cdf(1 - level) + NORMAL.inv_cdf(POWER)
    needed = []
    for spread in (sd, sd * math.sqrt(freedom / low)):
        size = math.ceil(1 / margin)
        while (margin - 1 / (size + 1)) * math.sqrt(size) < target * math.sqrt(spread**2 + 1 / (size + 1)):
            size += max(1, size // 100)
            if size > MAX_CONVERSATIONS:
                return None
        needed.append(size)
    return needed[0], needed[1]


def more_to_show(sums: np.ndarray, counts: np.ndarray, level: float) -> float:
    """How many conversations more it takes to reject "no loss" at `level`, if all go on like these; maybe infinity."""
    moved = sums[np.abs(sums) > 1e-12]
    strength = float(moved.sum() / math.sqrt(float((moved**2).sum()))) if len(moved) else 0.0
    if strength <= 0:
        return math.inf
    # Twice the evidence of the signs takes four times the conversations; and enough of them must differ.
    times = max((NORMAL.inv_cdf(1 - level) / strength) ** 2, math.log2(1 / level) / len(moved))
    return max(1.0, (times - 1) * int((counts > 0).sum()))


def more_to_exclude(sums: np.ndarray, counts: np.ndarray, reach: float, margin: float, level: float) -> float:
    """How many conversations more it takes to exclude a mean loss beyond the margin; maybe infinity.

    `reach` is the most that a turn can lose, as of `loss_bound`.
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    low, high = 1.0, 2.0
    while margin_p_value(sums, counts, reach, margin, high) > level:
        low, high = high, 2 * high
        if high * len(sums) > 2 * MAX_CONVERSATIONS:
            return math.inf
    while (high - low) * len(sums) > 0.5:
        middle = (low + high) / 2
        beyond = margin_p_value(sums, counts, reach, margin, middle) > level
        low, high = (middle, high) if beyond else (low, middle)
    return max(1.0, (high - 1) * len(sums))
