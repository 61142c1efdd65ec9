"""Intervals of means, and a test of a mean difference; conversations are the clusters.

`sums` and `counts` have the shape (C,), one number per conversation, as in `statistics`. The methods were chosen by
simulation: `results/error_rates.md` gives their coverage and size.

* A mean of bounded values, such as scores: the bounds of `statistics.loss_bound` at level .975 at both ends. The
  interval is never empty and never contradicts a verdict `pass`.
* A mean cost: bootstrap-t of the logarithm of the mean (Hall, Theoretical comparison of bootstrap confidence intervals,
  Annals of Statistics 1988). With less than `ROUGH` conversations it covers the mean in .90 to .95, else in .93.
* A mean difference of costs: bootstrap-t. The test of a mean difference inverts it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from agentlab.evals.stats.statistics import CONFIDENCE, NORMAL, Interval, loss_bound

SEED = 0
RESAMPLES = 1999
MAX_RESAMPLED = 1000
"""With more conversations formulas replace the bootstrap; the difference is below one percent."""
MIN_ERROR_SHARE = 0.2
"""Smallest standard error of a resample, as a share of the observed one: a resample of equal values has none."""
ROUGH = 20
"""Conversations below which intervals of costs are rough, and means of differences are not claimed."""
TAIL = (1 - CONFIDENCE) / 2
COST_TAIL = 0.0175
"""Share of the bootstrap beyond each end of the interval of a mean cost.

With .025 it covers skewed costs too seldom: lognormal ones with a standard deviation of 1 in .89 at 8 conversations and
.91 at 20, with .0175 in .92 and .94 (8,000 simulated runs a size).
"""


class Column(NamedTuple):
    """Values of a measure by conversation."""

    sums: np.ndarray
    counts: np.ndarray
    ends: tuple[float, float] | None = None
    """Smallest and largest possible value of a turn; None for costs."""
    longest: float = 0.0
    """Turns of the longest conversation of the data set, if the sample has only shorter ones."""
    is_difference: bool = False


def score_ends(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and largest possible score: 0 and 1, or the ends of `values` beyond them."""
    return float(values.min(initial=0.0)), float(values.max(initial=1.0))


def mean_interval(column: Column) -> tuple[float, Interval]:
    """Return the mean per turn and its 95 % interval; the interval is None with under two conversations."""
    has = column.counts > 0
    sums, counts = column.sums[has], column.counts[has]
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return mean, None
    if column.ends is None:
        return mean, _cost_interval(sums, counts, is_difference=column.is_difference)
    low, high = column.ends
    above = loss_bound(sums, counts, high, TAIL, column.longest)
    below = loss_bound(-sums, counts, -low, TAIL, column.longest)
    return mean, None if above is None or below is None else (min(mean, -below), max(mean, above))


def _cost_interval(sums: np.ndarray, counts: np.ndarray, *, is_difference: bool) -> tuple[float, float]:
    mean, error = _mean_and_error(sums, counts)
    if error <= 1e-12 * max(1.0, abs(mean)):
        return mean, mean
    is_log = not is_difference and mean > 0
    scale = error / mean if is_log else error
    tail = COST_TAIL if is_log else TAIL
    ends = -NORMAL.inv_cdf(tail), NORMAL.inv_cdf(tail)
    if len(sums) <= MAX_RESAMPLED:
        means, errors = _resampled(sums, counts)
        if is_log:
            # The logarithm of a mean of 0 does not exist.
            means, errors = means[means > 0], errors[means > 0]
            t = np.log(means / mean) / np.maximum(errors / means, MIN_ERROR_SHARE * scale)
        else:
            t = (means - mean) / np.maximum(errors, MIN_ERROR_SHARE * scale)
        rank = max(0, round(tail * (len(t) + 1)) - 1)
        ordered = np.partition(t, [rank, len(t) - 1 - rank])
        ends = max(0.0, float(ordered[-1 - rank])), min(0.0, float(ordered[rank]))
    if is_log:
        return mean * math.exp(-ends[0] * scale), mean * math.exp(-ends[1] * scale)
    return mean - ends[0] * scale, mean - ends[1] * scale


def mean_p_value(sums: np.ndarray, counts: np.ndarray) -> float:
    """Return the two-sided p-value of "the mean difference per turn is 0"; 1 with under two conversations.

    It is the bootstrap-t with equal tails. With many conversations it is Johnson's t (Modified t tests and confidence
    intervals for asymmetrical populations, JASA 1978).
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    mean, error = _mean_and_error(sums, counts) if len(sums) > 1 else (0.0, 0.0)
    if error <= 1e-12 * max(1.0, abs(mean)):
        return 0.0 if mean else 1.0
    if len(sums) > MAX_RESAMPLED:
        # In units of the standard deviation of a conversation.
        sd = error * math.sqrt(len(sums))
        skew = float((((sums - mean * counts) / (counts.mean() * sd)) ** 3).mean())
        t = mean / error + skew / (6 * math.sqrt(len(sums))) * (1 + 2 * (mean / error) ** 2)
        return 2 * NORMAL.cdf(-abs(t))
    means, errors = _resampled(sums, counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        t_values = np.nan_to_num((means - mean) / errors)
    t = mean / error
    return min(1.0, 2 * (1 + min(int((t_values >= t).sum()), int((t_values <= t).sum()))) / (len(t_values) + 1))


def _mean_and_error(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    mean = float(sums.sum() / counts.sum())
    residuals = sums - mean * counts
    error = math.sqrt(float(residuals @ residuals) * len(sums) / (len(sums) - 1)) / float(counts.sum())
    return mean, error


def _resampled(sums: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard errors of resampled conversations, shape (RESAMPLES,) each."""
    weights = resamples(len(sums))
    totals = weights @ np.column_stack([sums, counts, sums**2, sums * counts, counts**2])
    means = totals[:, 0] / totals[:, 1]
    squares = totals[:, 2] - 2 * means * totals[:, 3] + means**2 * totals[:, 4]
    # Below this share a sum of squares is a rounding error.
    squares[squares < 1e-12 * totals[:, 2]] = 0.0
    return means, np.sqrt(squares * len(sums) / (len(sums) - 1)) / totals[:, 1]


@lru_cache(maxsize=4)
def resamples(conversations: int) -> np.ndarray:
    """Return how often each conversation is in each bootstrap sample, shape (RESAMPLES, conversations)."""
    resampled = np.random.default_rng(SEED).integers(0, conversations, (RESAMPLES, conversations))
    flat = (resampled + conversations * np.arange(RESAMPLES)[:, None]).ravel()
    return np.bincount(flat, minlength=RESAMPLES * conversations).reshape(RESAMPLES, conversations).astype(float)
