"""Means with error bars, where turns of one conversation are not independent of each other.

Intervals are percentile bootstraps that resample whole conversations (Miller, Adding Error Bars to Evals, arXiv
2411.00640, section 2, names the conversation as the cluster; resampling in place of its normal approximation because
our sets are small, cf. arXiv 2503.01747).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
Z_TWO_SIDED_5 = 1.959964
Z_POWER_80 = 0.841621


def mean_with_interval(
    values: Sequence[float], clusters: Sequence[str], level: float = 0.95, seed: int = 0
) -> tuple[float, tuple[float, float] | None]:
    """The mean of `values`, and its interval from `RESAMPLES` resamples of clusters; None with under 2 clusters."""
    sums, counts = _by_cluster(values, clusters)
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return mean, None
    chosen = np.random.default_rng(seed).integers(0, len(sums), size=(RESAMPLES, len(sums)))
    means = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return mean, (float(low), float(high))


def smallest_visible_difference(differences: Sequence[float], clusters: Sequence[str]) -> float | None:
    """The true mean difference a two-sided test at 5 % would find in 80 % of such runs; None with under 2 clusters.

    `differences` are paired, turn by turn. (1.96 + 0.84) times the clustered standard error with the finite-cluster
    factor C / (C - 1), as in arXiv 2411.00640, equations 4 and 9.
    """
    sums, counts = _by_cluster(differences, clusters)
    if len(sums) < 2:
        return None
    mean = sums.sum() / counts.sum()
    deviations = sums - counts * mean
    variance = float((deviations**2).sum()) / float(counts.sum()) ** 2 * len(sums) / (len(sums) - 1)
    return (Z_TWO_SIDED_5 + Z_POWER_80) * math.sqrt(variance)


def _by_cluster(values: Sequence[float], clusters: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    if not values or len(values) != len(clusters):
        raise ValueError("values and clusters must be of one length, and not empty")
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    return np.bincount(codes, weights=np.asarray(values, dtype=float)), np.bincount(codes)
