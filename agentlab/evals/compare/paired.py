"""One measure on the same turns of two sides, as columns: a row a turn, and sums a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agentlab.core.errors import RunError
from agentlab.evals.store.measures import COSTS, Measure, TurnKey, Values, measure, turn_name


class TurnTable:
    """The turns of one side in the order of their keys; `conversations` numbers the conversations of all sides."""

    def __init__(
        self, rows: Mapping[TurnKey, Values], keys: Sequence[TurnKey], conversations: Mapping[str, int]
    ) -> None:
        self.keys = keys
        self.conversations = len(conversations)
        self.conversation_numbers = np.array([conversations[key[0]] for key in keys], dtype=int)
        self._rows = [rows[key] for key in keys]
        self._columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The values, NaN where one is not known, and whether the measure applies to the turn."""
        if name not in self._columns:
            there = np.array([name in row for row in self._rows], dtype=bool)
            self._columns[name] = np.array([row.get(name) for row in self._rows], dtype=float), there
        return self._columns[name]


def make_turn_tables(
    sides: Iterable[Mapping[TurnKey, Values]], keys: Mapping[int, Sequence[TurnKey]] | None = None
) -> list[TurnTable]:
    """A sheet of each side; `keys` names, by the place of a side, the turns to take of it instead of all."""
    chosen = [(rows, (keys or {}).get(place) or sorted(rows)) for place, rows in enumerate(sides)]
    names = sorted({key[0] for _, taken in chosen for key in taken})
    conversations = {name: number for number, name in enumerate(names)}
    return [TurnTable(rows, taken, conversations) for rows, taken in chosen]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedMeasure:
    """One measure on the same turns of A and B."""

    measure: Measure
    keys: tuple[TurnKey, ...]
    a: np.ndarray
    b: np.ndarray
    """A number a turn, NaN where it is not known."""
    conversation_numbers: np.ndarray
    """The number of each turn's conversation, of `size`."""
    size: int

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Of A and of B; None where a value is unknown."""
        return _mean(self.a), _mean(self.b)

    @cached_property
    def differences(self) -> np.ndarray:
        """B - A, a number a turn; empty where one of them is not known, for a part is not the whole.

        To twelve places: .9 - .7 and .8 - .6 are one loss, and are not to differ by a rounding error. A quality to six:
        vectors are computed in batches, and their last digits depend on what else is in the batch.
        """
        found: np.ndarray = np.round(self.b - self.a, 12 if self.measure in COSTS else 6)
        return np.empty(0) if np.isnan(found).any() else found

    @property
    def changed(self) -> bool:
        return bool(self.differences.any())

    @property
    def is_constant_shift(self) -> bool:
        """Whether every turn of several changed by the same."""
        return self.changed and len(self.differences) > 1 and float(np.ptp(self.differences)) == 0

    @property
    def direction(self) -> float:
        """1 where more is worse, else -1."""
        return -1.0 if self.measure.better == "higher" else 1.0

    @property
    def losses(self) -> np.ndarray:
        """The differences in the worse direction."""
        return self.direction * self.differences

    @cached_property
    def sums(self) -> np.ndarray:
        """Of the losses, shape (size,)."""
        return np.bincount(self.conversation_numbers, weights=self.losses, minlength=self.size)

    @cached_property
    def counts(self) -> np.ndarray:
        """Of turns, shape (size,)."""
        return np.bincount(self.conversation_numbers, minlength=self.size).astype(float)

    @property
    def conversations(self) -> int:
        return int((self.counts > 0).sum())

    @property
    def max_change(self) -> tuple[float, float]:
        """The most that a turn is taken to lose, and to gain.

        A metric goes from 0 to 1, or as far as it was seen. Costs have no end: a conversation that was not seen is
        taken to lose at most the mean of A, which doubles it, or the most that one was seen to lose.
        """
        if self.measure not in COSTS or self.measure.name == "failed":
            seen = np.concatenate([self.a, self.b])
            span = max(1.0, float(seen.max())) - min(0.0, float(seen.min()))
            return span, span
        has = self.counts > 0
        moved = self.sums[has] / self.counts[has]
        usual = abs(float(self.a.mean()))
        return max(usual, float(moved.max())), max(usual, float(-moved.min()))


def pair_measure(name: str, a: TurnTable, b: TurnTable) -> PairedMeasure:
    """The measure on the turns of two sheets of the same keys; raises RunError where one side was not scored."""
    (x, in_a), (y, in_b) = a.column(name), b.column(name)
    for place in np.flatnonzero(in_a != in_b).tolist():
        where = turn_name(a.keys[place])
        raise RunError(f"{where} was scored for {name} on one side only; the scores are not of one making")
    keys = tuple(key for key, there in zip(a.keys, in_a, strict=True) if there)
    return PairedMeasure(
        measure=measure(name),
        keys=keys,
        a=x[in_a],
        b=y[in_a],
        conversation_numbers=a.conversation_numbers[in_a],
        size=a.conversations,
    )


def _mean(values: np.ndarray) -> float | None:
    return None if not len(values) or np.isnan(values).any() else float(values.mean())
