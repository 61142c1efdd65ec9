"""Sample sizes: the conversations needed to show a loss, to exclude one, or to detect a given difference.

`sums` and `counts` have the shape (C,), one number per conversation: the sum of its turns' losses, and its number of
turns. `level` is the one-sided level of one test, after the correction for its family.
"""

from __future__ import annotations

import math

import numpy as np

from agentlab.evals.stats.statistics import NORMAL, margin_p_value, students_t

POWER = 0.8
MAX_CONVERSATIONS = 100_000
"""Larger sample sizes are not reported."""
MIN_EFFECTIVE_CONVERSATIONS = 8
"""Up to this number no detectable loss is reported, because the residuals are too few.

The number is Kish's effective sample size (Survey Sampling, 1965): turns ** 2 / sum of (turns of a conversation) ** 2.
One conversation that outweighs the others counts for little more than one."""


def standard_error(sums: np.ndarray, counts: np.ndarray) -> float:
    """Return the standard error of the mean per turn, from the residuals of at least two conversations.

    CR2: a conversation pulls the mean towards itself, so its residual is widened accordingly.
    """
    turns = float(counts.sum())
    residuals = sums - counts * (sums.sum() / turns)
    return math.sqrt(float((residuals**2 / (1 - np.minimum(counts / turns, 1 - 1e-9))).sum())) / turns


def detectable_loss(sums: np.ndarray, counts: np.ndarray, level: float) -> float | None:
    """Return the smallest constant loss per turn that a sign-flip test at `level` detects with probability `POWER`.

    The loss is (t at the level + z at the power) * standard error, after arXiv 2411.00640, equation 9, with Student's t
    because our sets are small. It is None if nothing varies or the conversations are too few.
    """
    conversations, turns = int((counts > 0).sum()), float(counts.sum())
    if turns**2 <= MIN_EFFECTIVE_CONVERSATIONS * float((counts**2).sum()) or 2.0**-conversations > level:
        return None
    error = standard_error(sums, counts)
    loss = (students_t(1 - level, conversations - 1) + NORMAL.inv_cdf(POWER)) * error
    return loss if loss > 1e-9 else None


def conversations_for_power(sums: np.ndarray, counts: np.ndarray, level: float, difference: float) -> int | None:
    """Return the conversations needed to detect a true difference with probability `POWER`; None if nothing varies.

    The number is (z at the level + z at the power)**2 * variance of the conversations' means / difference**2, after
    arXiv 2411.00640, equation 9. It is rounded up to two significant digits, since it is an estimate.
    """
    has = counts > 0
    if not sums.any() or has.sum() < 2:
        return None
    means = sums[has] / counts[has]
    needed = (NORMAL.inv_cdf(1 - level) + NORMAL.inv_cdf(POWER)) ** 2 * float(np.var(means, ddof=1)) / difference**2
    # Sign flips need log2(1 / level) conversations that differ before they can reject.
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


def conversations_to_reject(sums: np.ndarray, counts: np.ndarray, level: float) -> float:
    """Return how many more conversations like these reject "no loss" at `level`; may be infinite."""
    changed = sums[np.abs(sums) > 1e-12]
    strength = float(changed.sum() / math.sqrt(float((changed**2).sum()))) if len(changed) else 0.0
    if strength <= 0:
        return math.inf
    # The strength grows with the square root of the conversations, and enough of them must differ.
    growth = max((NORMAL.inv_cdf(1 - level) / strength) ** 2, math.log2(1 / level) / len(changed))
    return max(1.0, (growth - 1) * int((counts > 0).sum()))


def conversations_to_pass(sums: np.ndarray, counts: np.ndarray, max_loss: float, margin: float, level: float) -> float:
    """Return how many more conversations like these exclude a mean loss beyond `margin`; may be infinite.

    `max_loss` is the largest possible loss of a turn, as in `loss_bound`.
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    low, high = 1.0, 2.0
    while margin_p_value(sums, counts, max_loss, margin, high) > level:
        low, high = high, 2 * high
        if high * len(sums) > 2 * MAX_CONVERSATIONS:
            return math.inf
    while (high - low) * len(sums) > 0.5:
        middle = (low + high) / 2
        beyond = margin_p_value(sums, counts, max_loss, margin, middle) > level
        low, high = (middle, high) if beyond else (low, middle)
    return max(1.0, (high - 1) * len(sums))
