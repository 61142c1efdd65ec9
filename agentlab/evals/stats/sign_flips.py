"""Permutation tests that flip the signs of whole conversations, with the same sign flips for all measures.

If the two sides are exchangeable, all differences of a conversation could have the opposite sign with equal
probability. The test rejects exchangeability, not equality of the means. If one side is more skewed at the same mean,
as costs may be, it rejects more often than alpha.

`sums` has the shape (C, J): a row per conversation and a column per measure of a pair, with the sums of the turns'
differences. Each column is divided by the root of its sum of squares, which no flip changes. This ranks like Student's
t.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

SEED = 0
EXACT_UP_TO = 13
"""Maximum number of differing conversations for which all sign flips are tried."""
MAX_LATTICE = 100_000
"""Maximum sum of a column, in lattice steps, for an exact p-value."""
FEW_STEPS = 8
"""With at most this many different values, a Fourier transform is faster than a sum over all values."""
MAX_DIVISOR = 12
"""Maximum lattice steps in the smallest difference."""
DRAWS = 9999
BLOCK = 1_000_000
"""Numbers drawn at once, 8 MB."""
TIE = 1e-5
"""Two sums closer than this, in units of their column, are equal: they are computed in single precision."""


class PValues(NamedTuple):
    """p-values of every column, shape (J,) each."""

    p: np.ndarray
    """p-value of the column alone."""
    p_adjusted: np.ndarray
    """p-value adjusted for all tested columns."""


class SignFlips:
    """Sums of the columns under all sign flips; the same conversations get the same flips."""

    def __init__(self, sums: np.ndarray, *, two_sided: bool = False, draws: int = DRAWS) -> None:
        self.two_sided = two_sided
        changed = (np.abs(sums) > 1e-12).any(axis=1)
        # A conversation without a difference has no influence; without it more tests are exact.
        self.sums = sums[changed]
        norms = np.sqrt((self.sums**2).sum(axis=0))
        self.units = self.sums / np.where(norms > 0, norms, 1.0)
        self.exact = len(self.sums) <= EXACT_UP_TO
        self.draws = 2 ** len(self.sums) if self.exact else draws
        total = self.units.sum(axis=0)
        self.observed = np.abs(total) if two_sided else total

    @cached_property
    def all_sums(self) -> np.ndarray:
        return sums_under_flips(self.units, self.draws)

    @cached_property
    def null_sums(self) -> np.ndarray:
        return np.abs(self.all_sums) if self.two_sided else self.all_sums

    def p_value(self, hits: float) -> float:
        """Return the p-value of extreme flips; a sample includes the observation (Phipson and Smyth 2010)."""
        return hits / self.draws if self.exact else (hits + 1) / (self.draws + 1)

    @cached_property
    def p(self) -> np.ndarray:
        """p-value of each column alone, shape (J,): exact where its own differences allow it, else sampled."""
        exact = [exact_p_value(column, two_sided=self.two_sided) for column in self.sums.T]
        return np.array([self._p_of(self.null_sums[:, n], n) if p is None else p for n, p in enumerate(exact)])

    def _p_of(self, null_sums: np.ndarray, column: int) -> float:
        return self.p_value(int((null_sums >= float(self.observed[column]) - TIE).sum()))

    def test(self, family: np.ndarray | None = None) -> PValues:
        """Return the p-values by step-down maxT (Westfall and Young, Resampling-Based Multiple Testing, 1993).

        `family` marks the columns that are tested together, by default all. The other columns get an adjusted p of 1.
        """
        p, adjusted = self.p, np.ones(len(self.p))
        tested = np.flatnonzero(family) if family is not None else np.arange(len(p))
        order = tested[np.argsort(-self.observed[tested], kind="stable")]
        # The last column is alone.
        stepwise = p[order]
        if len(order) > 1:
            largest = self.null_sums[:, order[-1]].copy()
            for rank in range(len(order) - 2, -1, -1):
                np.maximum(largest, self.null_sums[:, order[rank]], out=largest)
                stepwise[rank] = self._p_of(largest, order[rank])
        adjusted[order] = np.maximum.accumulate(np.maximum(stepwise, p[order]))
        return PValues(p, adjusted)

    def minimum_p_values(self) -> np.ndarray:
        """Return the smallest possible p of each column: 2 ** -k if k conversations differ (Tarone 1990)."""
        differing = (np.abs(self.sums) > 1e-12).sum(axis=0)
        least = 0.0 if self.exact else 1 / (self.draws + 1)
        minimum: np.ndarray = np.minimum(1.0, np.maximum((2.0 if self.two_sided else 1.0) * 2.0**-differing, least))
        return minimum


def exact_p_value(values: np.ndarray, *, two_sided: bool) -> float | None:
    """Return the p-value of one column over all sign flips; None if too many values differ from each other.

    Up to `EXACT_UP_TO` values are enumerated. Multiples of one step, such as sums of binary scores, have a lattice
    distribution for any number of values. With few different values it is the inverse Fourier transform of a product of
    cosines, else each value in turn shifts the chances.
    """
    values = values[np.abs(values) > 1e-12]
    if not len(values):
        return 1.0
    observed, tie = float(values.sum()), TIE * float(np.abs(values).max())
    if len(values) <= EXACT_UP_TO:
        sums = sums_under_flips(values[:, None], 0)[:, 0]
        return float(((np.abs(sums) if two_sided else sums) >= (abs(observed) if two_sided else observed) - tie).mean())
    sizes = np.abs(values)
    multiples = np.arange(1, MAX_DIVISOR + 1)[:, None] * sizes / sizes.min()
    fits = (np.abs(multiples - np.round(multiples)) < TIE).all(axis=1)
    if not fits.any():
        return None
    divisor = int(fits.argmax()) + 1
    steps, weights = np.unique(np.round(multiples[divisor - 1]), return_counts=True)
    total = int(steps @ weights)
    if total > MAX_LATTICE:
        return None
    reached = (abs(observed) if two_sided else observed) * divisor / sizes.min()
    if len(steps) <= FEW_STEPS:
        angles = 2 * math.pi / (2 * total + 1) * np.arange(total + 1)
        transform = np.prod(np.cos(angles[:, None] * steps) ** weights, axis=1)
        chances = np.roll(np.fft.irfft(transform, 2 * total + 1), total)[np.arange(-total, total + 1) >= reached - 0.5]
    else:
        # Chances that the negative values sum to 0, 1, ... up to the largest sum that still reaches the observed one.
        chances = np.eye(1, int((total - reached) / 2 + 0.25) + 1)[0]
        for step in np.repeat(steps, weights).astype(int).tolist():
            chances[step:] += chances[: max(0, len(chances) - step)]
            chances /= 2
    # Smaller p-values are rounding errors.
    least = max(1e-15, (1 + two_sided) * 2.0 ** -len(values))
    return float(np.clip((1 + two_sided) * chances.sum(), least, 1.0))


def sums_under_flips(columns: np.ndarray, max_draws: int) -> np.ndarray:
    """Return the sums of `columns` (C, K) under all sign flips, or under `max_draws` random ones; shape (draws, K)."""
    size = len(columns)
    if size <= EXACT_UP_TO:
        exact = np.zeros((1, columns.shape[1]))
        for row in columns:
            exact = np.concatenate([exact + row, exact - row])
        return exact
    single = columns.astype(np.float32)
    # One verdict uses the signs of a small sample several times, so they are cached.
    blocks = _signs_of_few(size, max_draws) if size * max_draws <= BLOCK else _drawn_signs(size, max_draws)
    negated = np.concatenate([single.T @ minus.T for minus in blocks], axis=1)
    # The sums of a column are contiguous in memory.
    sums: np.ndarray = (single.sum(axis=0)[:, None] - 2 * negated).T
    return sums


def _drawn_signs(size: int, draws: int) -> Iterator[np.ndarray]:
    """Yield blocks of signs, 1 for minus, of shape (draws of the block, size)."""
    random = np.random.default_rng(SEED)
    for start in range(0, draws, max(1, BLOCK // size)):
        count = min(BLOCK // size or 1, draws - start) * size
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-count // 8)), dtype=np.uint8), count=count)
        yield bits.reshape(-1, size).astype(np.float32)


@lru_cache(maxsize=4)
def _signs_of_few(size: int, draws: int) -> list[np.ndarray]:
    return [*_drawn_signs(size, draws)]
