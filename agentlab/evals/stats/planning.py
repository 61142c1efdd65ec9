"""Sample sizes: the conversations needed to show a loss, to exclude one, or to detect a given difference.

`sums` and `counts` have the shape (C,), one number per conversation: the sum of its turns' losses, and its number of
turns. `level` is the one-sided level of one test, after the correction for its family.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from agentlab.evals.stats.statistics import NORMAL, students_t

MARGIN = 0.10
"""Loss of quality that `Ship X` excludes, and smallest difference that matters; per turn or conversation."""
COST_MARGIN = 0.25
"""Loss in a cost that a pass excludes, in shares of the mean."""
POWER = 0.8
MAX_CONVERSATIONS = 100_000
"""Larger sample sizes are not reported."""
MIN_DIFFERING = 5
"""Conversations that must differ before their variance can be estimated."""
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


class Needed(NamedTuple):
    """Number of further conversations; `str()` gives it as text."""

    low: int
    """Number if the conversations vary as much as the ones so far."""
    high: int
    """Number if they vary as much as the upper limit of the variance at 80 %, which keeps `POWER`."""
    is_least: bool = False
    """True if so few conversations differ that their variance is a guess."""

    def __str__(self) -> str:
        count = f"{self.low} to {self.high}" if self.low < self.high else str(self.high)
        return f"{'at least ' if self.is_least else ''}{count} more conversation{'s' if self.high > 1 else ''}"


def more_to_exclude(
    sums: np.ndarray, counts: np.ndarray, margin: float, max_loss: float, alpha: float = 0.05, longest: float = 0.0
) -> Needed | None:
    """Return how many more conversations exclude a mean loss of `margin`, if the two flows are equally good.

    `max_loss` and `longest` are as in `loss_bound`. With so many more conversations `POWER` of comparisons pass: the
    sum of the conversations' losses so far, plus a normal one with mean 0 and the standard deviation s of N more, stays
    below T margin - (max_loss - margin) - z(alpha) s sqrt(T) for T = C + N, which is `loss_bound` in the limit of many
    conversations. N is computed for two values of s, as in `Needed` (Browne, On the use of a pilot sample for sample
    size determination, Statistics in Medicine 1995). Returns None with under two conversations, or beyond
    `MAX_CONVERSATIONS`.
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    if len(sums) < 2 or not 0 < margin < max_loss:
        return None
    # An unseen conversation may lose this much, in mean conversations beyond the margin.
    unseen = max(float(counts.max()), longest) / float(counts.mean()) * (max_loss - margin)
    # Fewer conversations cannot pass, even if all are equal.
    growth = math.log1p(margin / unseen)
    if growth * MAX_CONVERSATIONS < -math.log(alpha):
        return None
    least = -math.log(alpha) / growth - len(sums)
    total, *deviations, is_least = _spread(sums, counts, max_loss)
    needed = []
    for deviation in deviations:
        low, high = 0, max(1, math.ceil(least))
        while not _passes(len(sums), high, total + unseen, deviation, margin, alpha):
            low, high = high, 2 * high
            if high > MAX_CONVERSATIONS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            passes = middle >= least and _passes(len(sums), middle, total + unseen, deviation, margin, alpha)
            low, high = (low, middle) if passes else (middle, high)
        needed.append(high)
    return Needed(needed[0], needed[1], is_least)


def _spread(sums: np.ndarray, counts: np.ndarray, max_loss: float) -> tuple[float, float, float, bool]:
    """Return the sum of the losses in mean conversations, the two standard deviations, and `Needed.is_least`."""
    mean, freedom = float(sums.sum() / counts.sum()), len(sums) - 1
    squares = float((((sums - mean * counts) / counts.mean()) ** 2).sum())
    if (np.abs(sums) > 1e-12).sum() < MIN_DIFFERING:
        # Half a conversation with the largest loss and half a one with the largest gain are added.
        deviation = math.sqrt((squares + max_loss**2) / (len(sums) + 1))
        return mean * len(sums), deviation, deviation, True
    # The chi-squared quantile by Wilson and Hilferty (1931).
    low = freedom * (1 - 2 / (9 * freedom) + NORMAL.inv_cdf(1 - POWER) * math.sqrt(2 / (9 * freedom))) ** 3
    return mean * len(sums), math.sqrt(squares / freedom), math.sqrt(squares / low), False


def _passes(size: int, more: int, total: float, deviation: float, margin: float, alpha: float) -> bool:
    limit = (size + more) * margin + NORMAL.inv_cdf(alpha) * deviation * math.sqrt(size + more)
    return limit - total >= NORMAL.inv_cdf(POWER) * deviation * math.sqrt(more)
