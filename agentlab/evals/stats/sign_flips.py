"""Permutation tests that flip the signs of whole conversations: one matrix of signs for all measures of a question.

If it does not matter which side is which, the differences of a conversation may as well all have the other sign. That
is what is tested ("exchangeable"), and not that the means are the same: where one side is more skewed than the other
with the same mean, as costs may be, alarms are more frequent than alpha.

`sums` has the shape (C, J): a row a conversation, a column a measure of a pair; the sums of its turns' differences. A
column is read in units of the root of its sum of squares, which no flip changes; that ranks as Student's t does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SEED = 0
EXACT_UP_TO = 13
"""Conversations that differ, for which all flips are tried."""
DRAWS = 9999
BLOCK = 1_000_000
"""Numbers drawn at once: 8 MB."""
TIE = 1e-5
"""Closer than that, in units of a column, two sums are the same: signs are summed in single precision."""


class PValues(NamedTuple):
    """Of every column."""

    p: np.ndarray
    """Of its own."""
    p_adjusted: np.ndarray
    """For all columns together."""


class SignFlips:
    """The columns under all sign draws; the same conversations give the same draws."""

    def __init__(self, sums: np.ndarray, *, two_sided: bool = False, draws: int = DRAWS) -> None:
        self.two_sided = two_sided
        changed = (np.abs(sums) > 1e-12).any(axis=1)
        # What differs nowhere cannot tell, and without it more tests are exact.
        self.sums = sums[changed]
        norms = np.sqrt((self.sums**2).sum(axis=0))
        self.units = self.sums / np.where(norms > 0, norms, 1.0)
        self.exact = len(self.sums) <= EXACT_UP_TO
        self.drawn = sums_under_flips(self.units, draws)
        self.observed = self._side(self.units.sum(axis=0))
        self.null_sums = self._side(self.drawn)

    def _side(self, units: np.ndarray) -> np.ndarray:
        return np.abs(units) if self.two_sided else units

    def p_value(self, hits: np.ndarray) -> np.ndarray:
        """A p-value from the draws as far out; to a sample what was observed is added (Phipson and Smyth 2010)."""
        return hits / len(self.drawn) if self.exact else (hits + 1) / (len(self.drawn) + 1)

    def test(self, family: np.ndarray | None = None) -> PValues:
        """Westfall and Young's step-down maxT (Resampling-Based Multiple Testing, 1993) over the columns.

        `family` marks the columns that are tested together, by default all; the rest has an adjusted p of 1.
        """
        p = self.p_value((self.null_sums >= self.observed - TIE).sum(axis=0))
        adjusted = np.ones(len(p))
        tested = np.flatnonzero(family) if family is not None else np.arange(len(p))
        order = tested[np.argsort(-self.observed[tested], kind="stable")]
        largest = np.full(len(self.null_sums), -np.inf)
        found = np.empty(len(order))
        for rank in range(len(order) - 1, -1, -1):
            np.maximum(largest, self.null_sums[:, order[rank]], out=largest)
            found[rank] = self.p_value((largest >= self.observed[order[rank]] - TIE).sum())
        adjusted[order] = np.maximum.accumulate(found)
        return PValues(p, adjusted)

    def minimum_p_values(self) -> np.ndarray:
        """The least p of each column, whatever the signs: 2 ** -k where k conversations differ (Tarone 1990)."""
        differing = (np.abs(self.sums) > 1e-12).sum(axis=0)
        least = 0.0 if self.exact else 1 / (len(self.drawn) + 1)
        found: np.ndarray = np.minimum(1.0, np.maximum((2.0 if self.two_sided else 1.0) * 2.0**-differing, least))
        return found


def sums_under_flips(columns: np.ndarray, most: int) -> np.ndarray:
    """The sums of columns (C, K) under all signs of the C conversations, or under so many drawn; shape (draws, K)."""
    size = len(columns)
    if size <= EXACT_UP_TO:
        minus = np.arange(2**size)[:, None] >> np.arange(size) & 1
        exact: np.ndarray = columns.sum(axis=0) - 2 * (minus @ columns)
        return exact
    random, single = np.random.default_rng(SEED), columns.astype(np.float32)
    parts = []
    for start in range(0, most, max(1, BLOCK // size)):
        count = min(BLOCK // size or 1, most - start) * size
        bits = np.unpackbits(np.frombuffer(random.bytes(-(-count // 8)), dtype=np.uint8), count=count)
        parts.append(bits.reshape(-1, size).astype(np.float32) @ single)
    drawn: np.ndarray = columns.sum(axis=0) - 2 * np.concatenate(parts).astype(float)
    return drawn
