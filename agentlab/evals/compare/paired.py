"""Pairs one measure on the same turns of two sides: a row per turn, and sums per conversation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import compress
from types import MappingProxyType

import numpy as np

from agentlab.core.constants import JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX
from agentlab.core.errors import RunError
from agentlab.evals.stats.agreement import Estimate, estimate
from agentlab.evals.stats.intervals import Column, score_ends
from agentlab.evals.store.measures import ABSTAINING, COSTS, Measure, TurnKey, Values, measure, turn_name


class TurnTable:
    """Turns of one side in the order of their keys; `conversations` numbers the conversations of all sides."""

    def __init__(self, rows: Mapping[TurnKey, Values], conversations: Mapping[str, int], longest: int = 0) -> None:
        self.keys = keys = sorted(rows)
        self.longest = longest
        """Turns of the longest conversation of the data set that was left out, over all epochs; 0 if none is known."""
        self.conversations = len(conversations)
        self.conversation_numbers = np.array([conversations[key[0]] for key in keys], dtype=int)
        self._rows = [rows[key] for key in keys]
        self._columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the values, NaN if unknown, and a mask of the turns that have the measure; shape (turns,) each."""
        if name not in self._columns:
            applies = np.array([name in row for row in self._rows], dtype=bool)
            self._columns[name] = np.array([row.get(name) for row in self._rows], dtype=float), applies
        return self._columns[name]


def make_turn_tables(sides: Iterable[Mapping[TurnKey, Values]], longest: int = 0) -> list[TurnTable]:
    """Return a table per side.

    `longest` is the largest number of turns of a conversation of the data set that was left out, over all epochs.
    """
    sides = [*sides]
    names = sorted({key[0] for rows in sides for key in rows})
    conversations = {name: number for number, name in enumerate(names)}
    return [TurnTable(rows, conversations, longest) for rows in sides]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedMeasure:
    """Values of one measure on the same turns of A and B."""

    measure: Measure
    keys: tuple[TurnKey, ...]
    a: np.ndarray
    b: np.ndarray
    """Values of B per turn, like `a`; NaN if unknown."""
    conversation_numbers: np.ndarray
    """Number of each turn's conversation, below `size`."""
    size: int
    stop: float | None = None
    """Largest value of B that a declared stop allows, for a cost; None if none is declared."""
    longest: int = 0
    """Turns of the longest conversation of the data set that was left out, over all epochs; 0 if none is known."""
    hidden: np.ndarray = field(default_factory=partial(np.empty, (3, 0)))
    """Conversation number, largest loss and largest gain of each turn that one side alone leaves undecided."""
    corrected: Estimate | None = None
    """Mean loss by human labels, for a judge's measure with enough labels: its own scores decide nothing."""

    @property
    def left_out(self) -> int:
        """Return the number of turns that one side alone leaves undecided."""
        return int(self.hidden.shape[1])

    @property
    def may_be_primary(self) -> bool:
        """Return False for a judge's measure without enough human labels."""
        return self.corrected is not None or not self.measure.name.startswith(JUDGE_METRIC_PREFIX)

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Return the means of A and B; None if a value is unknown."""
        return _mean(self.a), _mean(self.b)

    @cached_property
    def differences(self) -> np.ndarray:
        """Return B - A per turn; empty if any value is unknown.

        Costs are rounded to twelve digits, so that .9 - .7 and .8 - .6 are equal. Qualities are rounded to six, since
        the last digits of vectors depend on their batch.
        """
        differences: np.ndarray = np.round(self.b - self.a, 12 if self.measure in COSTS else 6)
        return np.empty(0) if np.isnan(differences).any() else differences

    @property
    def changed(self) -> bool:
        return bool(self.differences.any()) or (self.corrected is not None and self.corrected.value != 0)

    @property
    def is_constant_shift(self) -> bool:
        """Return True if at least two turns changed, all by the same amount."""
        return self.changed and len(self.differences) > 1 and float(np.ptp(self.differences)) == 0

    @property
    def direction(self) -> float:
        """Return 1 if more is worse, else -1."""
        return -1.0 if self.measure.better == "higher" else 1.0

    @property
    def losses(self) -> np.ndarray:
        """Return the differences, positive if B is worse."""
        return self.direction * self.differences

    @cached_property
    def sums(self) -> np.ndarray:
        """Return the sums of the losses per conversation, shape (size,)."""
        return np.bincount(self.conversation_numbers, weights=self.losses, minlength=self.size)

    @cached_property
    def counts(self) -> np.ndarray:
        """Return the numbers of turns per conversation, shape (size,)."""
        return np.bincount(self.conversation_numbers, minlength=self.size).astype(float)

    @property
    def conversations(self) -> int:
        return int((self.counts > 0).sum())

    def worst_case(self, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Return losses, or with sign -1 gains, and turns per conversation, shape (size,) each.

        A turn that one side leaves undecided counts with the largest loss or gain that it may hide.
        """
        numbers, *changes = self.hidden
        lost = np.bincount(numbers.astype(int), weights=changes[sign < 0], minlength=self.size)
        return sign * self.sums + lost, self.counts + np.bincount(numbers.astype(int), minlength=self.size)

    def estimands(self, sign: float = 1.0) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """Yield `worst_case` and the longest conversation for the mean over turns, and for that over conversations.

        The second one is left out if all conversations have one length, since both are the same then.
        """
        sums, counts = self.worst_case(sign)
        sums, counts = sums[counts > 0], counts[counts > 0]
        yield sums, counts, float(self.longest)
        if len(counts) and (np.ptp(counts) or self.longest > counts[0]):
            yield sums / counts, np.ones(len(counts)), 1.0

    @property
    def column(self) -> Column:
        """Return B - A by conversation, for an interval of its mean."""
        ends = (-self.max_change[0], self.max_change[0]) if self.measure.is_bounded else None
        return Column(self.direction * self.sums, self.counts, ends, float(self.longest), is_difference=True)

    @property
    def max_change(self) -> tuple[float, float]:
        """Return the assumed largest loss and largest gain of a turn.

        A metric has the range 0 to 1, or the observed range if it is larger. A cost loses at most the way from A's
        cheapest conversation to the stop of B. Without a stop, or beyond it, the loss has no limit. A gain is at most
        A's dearest conversation, or the largest observed gain.
        """
        if self.measure.is_bounded:
            low, high = score_ends(np.concatenate([self.a, self.b]))
            return high - low, high - low
        has = self.counts > 0
        changes = self.sums[has] / self.counts[has]
        usual = np.bincount(self.conversation_numbers, weights=self.a, minlength=self.size)[has] / self.counts[has]
        gain = max(float(usual.max()), float(-changes.min()))
        if self.stop is None or not float(self.b.max()) <= self.stop:
            return math.inf, gain
        return self.stop - float(usual.min()), gain


def pair_measure(
    name: str, a: TurnTable, b: TurnTable, stops: Mapping[str, float] = MappingProxyType({})
) -> PairedMeasure:
    """Pair a measure of two tables with the same keys; `stops` are the declared stops of B, by cost.

    A turn that one side leaves undecided is left out. Raises RunError if only one side has a score on another turn.
    """
    (x, in_a), (y, in_b) = a.column(name), b.column(name)
    differ = np.flatnonzero(in_a != in_b)
    # Only scores from 0 to 1, where higher is better, are left undecided.
    undecided = differ if name in ABSTAINING else differ[:0]
    changes = (np.nan_to_num(s[undecided], nan=1) - np.nan_to_num(t[undecided]) for s, t in ((x, y), (y, x)))
    hidden = np.array([a.conversation_numbers[undecided], *changes])
    in_a = in_a & in_b
    for index in differ[len(undecided) :].tolist():
        turn = turn_name(a.keys[index])
        raise RunError(f"{turn} has {name} on one side only; regrade both runs with `agentlab score`")
    corrected, labels = None, name.replace(JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX, 1)
    if name != labels and in_a.any() and not np.isnan((x - y)[in_a]).any():
        lost = (a.column(labels)[0] - b.column(labels)[0])[in_a]
        estimated = estimate((x - y)[in_a], lost, a.conversation_numbers[in_a].astype(str))
        corrected = None if estimated.interval is None else estimated
    return PairedMeasure(
        measure=measure(name),
        keys=tuple(compress(a.keys, in_a.tolist())),
        a=x[in_a],
        b=y[in_a],
        conversation_numbers=a.conversation_numbers[in_a],
        size=a.conversations,
        stop=stops.get(name),
        corrected=corrected,
        longest=a.longest,
        hidden=hidden,
    )


def _mean(values: np.ndarray) -> float | None:
    return None if not len(values) or np.isnan(values).any() else float(values.mean())
