"""Means and upper bounds of a loss, with conversations as clusters.

Turns of one conversation are not independent of each other, so the conversation is the cluster (Miller, Adding Error
Bars to Evals, arXiv 2411.00640, section 2). Our sets are small (cf. arXiv 2503.01747), so bounds hold for any number of
conversations.

`sums` and `counts` are arrays of shape (C,), one number per conversation: the sum of its values, and the number of
turns with a value. A mean is the ratio of their totals. Importing scipy takes longer than grading a small run, so it is
imported only where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
FINE = 1000
"""Steps of a grid of sums; the sums of more conversations are rounded to the grid."""
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


def quantile(values: np.ndarray, fraction: float) -> float:
    """Return the quantile at `fraction` by linear interpolation (Hyndman and Fan's type 7), bit-equal to `np.quantile`.

    `np.quantile` first imports masked arrays, which takes as long as grading a conversation.
    """
    ordered = np.sort(values)
    position = fraction * (len(ordered) - 1)
    before = int(position)
    low, high, part = float(ordered[before]), float(ordered[min(before + 1, len(ordered) - 1)]), position - before
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def students_t(level: float, freedom: int) -> float:
    """Return the quantile of Student's t, to three digits from 8 degrees of freedom on.

    It is the expansion of Cornish and Fisher (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
    """
    z = NORMAL.inv_cdf(level)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2 + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / freedom**3


def loss_bound(
    sums: np.ndarray, counts: np.ndarray, max_loss: float, alpha: float = 0.05, longest: float = 0.0
) -> float | None:
    """Return the upper bound of the mean loss per turn at level 1 - alpha; None with fewer than two conversations.

    `max_loss` is the largest possible loss of a turn. The bound is a quantile of weighted means: conversations get
    independent exponential weights. One more conversation is added that lost everything. It is as long as the longest
    one, or has `longest` turns if the data set has a longer one, since unseen breaks may be long.

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
    # The quantile of the normal distribution is nearly linear in the margin, so a secant needs few steps.
    low, high, target = mean, max_loss, NORMAL.inv_cdf(alpha)
    length = max(float(counts.max()), longest)
    centre = (sums.sum() + length * max_loss) / (counts.sum() + length)
    residuals = np.append(sums - centre * counts, length * (max_loss - centre))
    error = math.sqrt(float((residuals**2).sum())) / (float(counts.sum()) + length)
    guess, before = float(centre - target * error), None
    for _ in range(100):
        guess = guess if low < guess < high else (low + high) / 2
        p = margin_p_value(sums, counts, max_loss, guess, longest)
        excess = NORMAL.inv_cdf(min(max(p, 1e-99), 1 - 1e-15)) - target
        low, high = (guess, high) if excess > 0 else (low, guess)
        slope = (excess - before[1]) / (guess - before[0]) if before else -1 / error
        step, before = (-excess / slope if slope < 0 else math.inf), (guess, excess)
        if min(abs(step), high - low) < 1e-7 * (max_loss - mean):
            break
        guess += step
    return guess


def margin_p_value(sums: np.ndarray, counts: np.ndarray, max_loss: float, margin: float, longest: float = 0.0) -> float:
    """Return the p-value of "the mean loss is `margin` or more"; arguments as in `loss_bound`, all counts above 0.

    It is P(sum of E_i z_i > 0) for independent standard exponentials E_i, by inversion of the Laplace transform of the
    sum along the vertical line through its saddlepoint.
    """
    scale = max(float(counts.max()), longest)
    if len(sums) > FINE:
        # The grid is much finer than the distance from mean to bound, and equal sums are computed once.
        step = float(np.ptp(sums)) / FINE or 1.0
        sums = np.round(sums / step) * step
    excess = sums - margin * counts
    z = np.append(excess, scale * (max_loss - margin))
    if z[-1] <= 0 or z.max() <= 0:
        return 0.0
    if z.min() >= 0:
        return 1.0
    z, weight = np.unique(z, return_counts=True)
    z /= np.abs(z).max()
    point = _saddlepoint(z, weight)
    width = 1 / math.sqrt(float((weight * (z / (1 - point * z)) ** 2).sum()) + 1 / point**2)
    # The integrand decays at least like a power of the path's length, with many conversations like a Gaussian.
    grid = np.linspace(0.0, 6.4, 65)
    heights = np.zeros(len(grid))
    for start in range(0, len(grid), 13):
        part = grid[start : start + 13]
        up = width * np.sinh(part)
        real, imaginary = 1 - point * z, -up[:, None] * z
        size, angle = np.log(real**2 + imaginary**2) @ weight / -2, np.arctan2(imaginary, real) @ weight
        value = np.exp(size - 1j * angle) / (point + 1j * up)
        heights[start : start + 13] = value.real * width * np.cosh(part)
        if np.abs(heights[start : start + 13]).max() < 1e-9 * abs(heights[0]):
            break
    return float(np.clip((heights.sum() - heights[0] / 2) * grid[1] / math.pi, 0.0, 1.0))


def _saddlepoint(z: np.ndarray, weight: np.ndarray) -> float:
    """Return the minimum point, between 0 and its first pole, of the transform divided by its argument."""
    low, high = 0.0, 1 / float(z.max())
    point = high / 2
    for _ in range(40):
        pulls = z / (1 - point * z)
        slope, curvature = float(weight @ pulls) - 1 / point, float(weight @ pulls**2) + 1 / point**2
        # Any path near the point has the same integral.
        if abs(slope) < 1e-3 * math.sqrt(curvature):
            break
        low, high = (low, point) if slope > 0 else (point, high)
        newton = point - slope / curvature
        point = newton if low < newton < high else (low + high) / 2
    return point


def cohens_dz(differences: np.ndarray) -> float | None:
    """Return the mean of paired differences divided by their standard deviation; None if they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return float(differences.mean() / differences.std(ddof=1))
