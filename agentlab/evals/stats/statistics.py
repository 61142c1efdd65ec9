"""Intervals of means and upper bounds of a loss, with conversations as clusters.

Turns of one conversation are not independent of each other, so the conversation is the cluster (Miller, Adding Error
Bars to Evals, arXiv 2411.00640, section 2). Our sets are small (cf. arXiv 2503.01747), so intervals come from
resampling conversations, and bounds hold for any number of conversations.

`sums` and `counts` are arrays of shape (C,), one number per conversation: the sum of its values, and the number of
turns with a value. A mean is the ratio of their totals. Importing scipy takes longer than grading a small run, so it is
imported only where it is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 0
BLOCK = 1_000_000
"""Numbers drawn at once, 8 MB."""
FINE = 1000
"""Steps of a grid of sums, or of angles / 20; conversations beyond this number are rounded to the grid."""
NORMAL = NormalDist()
Interval = tuple[float, float] | None


def by_cluster(
    values: Sequence[float] | np.ndarray, clusters: Sequence[str] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and counts by conversation, shape (C,) each, of one value per turn; raises ValueError if empty."""
    if not len(values) or len(values) != len(clusters):
        raise ValueError("values and clusters must be of one length, and not empty")
    _, numbers = np.unique(np.asarray(clusters), return_inverse=True)
    return np.bincount(numbers, weights=np.asarray(values, dtype=float)), np.bincount(numbers).astype(float)


def quantile(values: np.ndarray, share: float) -> float:
    """Return the quantile at `share` by linear interpolation (Hyndman and Fan's type 7), bit-equal to `np.quantile`.

    `np.quantile` first imports masked arrays, which takes as long as grading a conversation.
    """
    ordered = np.sort(values)
    position = share * (len(ordered) - 1)
    before = int(position)
    low, high, part = float(ordered[before]), float(ordered[min(before + 1, len(ordered) - 1)]), position - before
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def mean_intervals(columns: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[tuple[float, Interval]]:
    """Return, for each (sums, counts), the mean and its 95 % bootstrap interval over clusters.

    The interval is None with fewer than two clusters. The method is BCa (Efron, Better Bootstrap Confidence Intervals,
    JASA 1987), at a level that is widened for few clusters (Hesterberg, What Teachers Should Know about the Bootstrap,
    American Statistician 2015, the expanded percentile interval).

    It was chosen by simulation: 600 to 1000 sets of C conversations with 4 turns each, F1-like values with spikes at 0
    and 1. An interval at 95 % covered the true mean in

        C                   5     10    20    40
        percentile        .847  .907  .944  .943
        BCa               .860  .915  .953  .948
        BCa, expanded     .922  .942  .953  .950

    Binary values, lognormal seconds and paired differences give the same order of the three methods. Intervals stay too
    narrow for a skew that few conversations do not show: coverage is .87 for lognormal seconds at C = 5, and .78 for
    events rarer than one in ten. Columns with the same number of conversations share their resamples.
    """
    intervals: list[tuple[float, Interval]] = [(0.0, None)] * len(columns)
    by_size: dict[int, list[tuple[int, np.ndarray, np.ndarray]]] = defaultdict(list)
    for index, (sums, counts) in enumerate(columns):
        has = counts > 0
        sums, counts = sums[has], counts[has]
        mean = float(sums.sum() / counts.sum())
        if len(sums) < 2:
            intervals[index] = mean, None
        elif np.ptp(sums / counts) <= 1e-12 * max(1.0, abs(mean)):
            intervals[index] = mean, (mean, mean)
        else:
            by_size[len(sums)].append((index, sums, counts))
    for size, group in by_size.items():
        tops = np.column_stack([sums for _, sums, _ in group])
        bottoms = np.column_stack([counts for _, _, counts in group])
        means = np.concatenate([(weights @ tops) / (weights @ bottoms) for weights in resamples(size)])
        for column, (index, sums, counts) in enumerate(group):
            mean = float(sums.sum() / counts.sum())
            low, high = _bca(means[:, column], mean, sums, counts)
            intervals[index] = mean, (min(mean, low), max(mean, high))
    return intervals


def resamples(clusters: int) -> Iterator[np.ndarray]:
    """Yield the counts of each cluster in `RESAMPLES` bootstrap samples, in blocks of shape (b, clusters)."""
    random, left = np.random.default_rng(SEED), RESAMPLES
    while left:
        rows = min(left, max(1, BLOCK // clusters))
        draws = random.integers(0, clusters, (rows, clusters)) + clusters * np.arange(rows)[:, None]
        yield np.bincount(draws.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(float)
        left -= rows


def _bca(resampled: np.ndarray, mean: float, sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the ends of the BCa interval of `mean` from the means of its resamples."""
    size = len(sums)
    # At two clusters the widened level rounds to 1, so the interval is the range of the resamples.
    wider = min(math.sqrt(size / (size - 1)) * students_t((1 + CONFIDENCE) / 2, size - 1), -NORMAL.inv_cdf(5e-10))
    ends = np.array([-wider, wider])
    # The jackknife leaves out one conversation at a time.
    jackknifed = (sums.sum() - sums) / (counts.sum() - counts)
    influence = jackknifed.mean() - jackknifed
    spread = float((influence**2).sum())
    below = float(((resampled < mean).mean() + (resampled <= mean).mean()) / 2)
    # BCa is undefined if all resamples lie on one side of the mean, or if the jackknife does not vary.
    if 0 < below < 1 and spread > 0:
        shift, skew = NORMAL.inv_cdf(below), float((influence**3).sum()) / (6 * spread**1.5)
        ends = shift + (shift + ends) / (1 - skew * (shift + ends))
    low, high = np.quantile(resampled, [NORMAL.cdf(end) for end in ends])
    return float(low), float(high)


@cache
def students_t(level: float, freedom: int) -> float:
    """Return the quantile of Student's t for a level above .5, to six digits.

    With t = sqrt(freedom) * tan(a) the density of a is cos(a) ** (freedom - 1).
    """
    angles = np.linspace(0, min(math.pi / 2, 9 / math.sqrt(freedom)), 20 * FINE)
    heights = np.cos(angles) ** (freedom - 1)
    areas = np.cumsum(heights[1:] + heights[:-1])
    angle = np.interp(2 * level - 1, areas / areas[-1], angles[1:])
    return math.sqrt(freedom) * math.tan(angle)


def loss_bound(
    sums: np.ndarray, counts: np.ndarray, max_loss: float, alpha: float = 0.05, growth: float = 1.0
) -> float | None:
    """Return the upper bound of the mean loss per turn at level 1 - alpha; None with fewer than two conversations.

    `max_loss` is the largest possible loss of a turn. `growth` multiplies the conversations, to predict the bound of a
    larger set. The bound is a quantile of weighted means: conversations get independent exponential weights. One more
    conversation is added that lost everything. It is as long as the longest one, since unseen breaks may be long.

    Without variation the bound is 1 - alpha ** (1 / C) of the largest loss. If conversations either break or do not, it
    is the bound of Clopper and Pearson. It follows Gaffke (Three test statistics for a nonparametric one-sided
    hypothesis on the mean of a nonnegative variable, 2005), and Learned-Miller and Thomas (A new confidence interval
    for the mean of a bounded random variable, arXiv 1905.06208), for conversations of equal length. In no known case
    does it fail more often than alpha.

    It was chosen by simulation. If 5 % of conversations break and the margin is 5 %, it passes in at most .05 of the
    cases, for any length and number. Clustered standard errors (CR2, Bell-McCaffrey) pass in .77.
    """
    sums, counts = sums[counts > 0], counts[counts > 0]
    if len(sums) < 2:
        return None
    mean = float(sums.sum() / counts.sum())
    if mean >= max_loss:
        return mean
    from scipy.optimize import brentq

    def log_excess(margin: float) -> float:
        return math.log(max(margin_p_value(sums, counts, max_loss, margin, growth), 1e-99) / alpha)

    return float(brentq(log_excess, mean, max_loss, xtol=1e-7 * (max_loss - mean), rtol=1e-9))


def margin_p_value(sums: np.ndarray, counts: np.ndarray, max_loss: float, margin: float, growth: float = 1.0) -> float:
    """Return the p-value of "the mean loss is `margin` or more"; arguments as in `loss_bound`, all counts above 0.

    It is P(sum of E_i z_i > 0) for independent standard exponentials E_i, by inversion of the Laplace transform of the
    sum along the vertical line through its saddlepoint.
    """
    scale = float(counts.max())
    if len(sums) > FINE:
        # The grid is much finer than the distance from mean to bound, and equal sums are computed once.
        step = float(np.ptp(sums)) / FINE or 1.0
        sums = np.round(sums / step) * step
    excess = sums - margin * counts
    z = np.append(excess, scale * (max_loss - margin))
    weight = np.append(np.full(len(excess), growth), 1.0)
    if z[-1] <= 0 or z.max() <= 0:
        return 0.0
    if z.min() >= 0:
        return 1.0
    z, indices = np.unique(z, return_inverse=True)
    weight = np.bincount(indices, weights=weight)
    z /= np.abs(z).max()
    point = _saddlepoint(z, weight)
    width = 1 / math.sqrt(float((weight * (z / (1 - point * z)) ** 2).sum()) + 1 / point**2)
    # The integrand decays at least like a power of the path's length, with many conversations like a Gaussian.
    grid = np.linspace(0.0, 6.4, 65)
    heights = np.zeros(len(grid))
    for start in range(0, len(grid), 8):
        part = grid[start : start + 8]
        up = width * np.sinh(part)
        real, imaginary = 1 - point * z, -up[:, None] * z
        size, angle = np.log(real**2 + imaginary**2) @ weight / -2, np.arctan2(imaginary, real) @ weight
        value = np.exp(size - 1j * angle) / (point + 1j * up)
        heights[start : start + 8] = value.real * width * np.cosh(part)
        if np.abs(heights[start : start + 8]).max() < 1e-9 * abs(heights[0]):
            break
    return float(np.clip((heights.sum() - heights[0] / 2) * grid[1] / math.pi, 0.0, 1.0))


def _saddlepoint(z: np.ndarray, weight: np.ndarray) -> float:
    """Return the minimum point, between 0 and its first pole, of the transform divided by its argument."""
    low, high = 0.0, 1 / float(z.max())
    for _ in range(40):
        middle = (low + high) / 2
        rising = float((weight * z / (1 - middle * z)).sum()) > 1 / middle
        low, high = (low, middle) if rising else (middle, high)
    return (low + high) / 2


def cohens_dz(differences: np.ndarray) -> float | None:
    """Return the mean of paired differences divided by their standard deviation; None if they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return float(differences.mean() / differences.std(ddof=1))
