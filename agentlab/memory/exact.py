"""Facts with their vectors in the memory of this process: the exact search of SQLite, textfile and MongoDB.

    shelf.put([fact], [vector])
    shelf.nearest(vector, 3)            # about a millisecond at 10,000 facts of 384 dimensions

Rows are only ever appended and marked as gone, so a copy shares the vectors of the original.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory
from agentlab.memory.base import Rows, StoredMemory, Vector, rank

_SLACK = 1e-5
"""More than the single-precision search can be off by; what comes this near to the last place is ranked exactly."""


class Shelf:
    """The facts of one user, oldest first; `Rows` without a disk below it."""

    _facts: list[Fact | None]
    _numbers: list[int]
    _row: dict[str, int]
    _vectors: Vector

    def __init__(self) -> None:
        self.clear()

    @property
    def newest(self) -> int:
        """The number of the last fact that was put, 0 before the first."""
        return self._numbers[-1] if self._numbers else 0

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        if not self._row:
            return []
        self.check(vector)
        rows = np.fromiter(self._row.values(), dtype=np.intp, count=len(self._row))
        # Not a matrix product: its threads take twenty times as long as soon as a model runs on the same cores.
        rough = np.vecdot(self._vectors[: len(self._facts)], vector)
        if len(rows) < len(self._facts):
            rough = rough[rows]
        if count < len(rows):
            last = np.partition(rough, len(rows) - count)[len(rows) - count]
            rows = rows[rough >= last - _SLACK]
        candidates = [fact for row in rows.tolist() if (fact := self._facts[row]) is not None]
        return rank(candidates, self._vectors[rows], vector, count)

    def get(self, fact_id: str) -> Fact | None:
        row = self._row.get(fact_id)
        return None if row is None else self._facts[row]

    def all(self) -> list[Fact]:
        return [fact for fact in self._facts if fact is not None]

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        if replaces is not None:
            self.remove(replaces)
        for fact, vector in zip(facts, vectors, strict=True):
            self.append(self.newest + 1, fact, vector)

    def append(self, number: int, fact: Fact, vector: Vector) -> None:
        """Put a fact that a store knows by `number`, which is higher for every new one."""
        self.check(vector)
        if len(self._facts) == len(self._vectors):
            self._make_room(vector.size)
        self._vectors[len(self._facts)] = vector
        self._row[fact.id] = len(self._facts)
        self._facts.append(fact)
        self._numbers.append(number)

    def remove(self, fact_id: str) -> None:
        self._facts[self._row.pop(fact_id)] = None

    def clear(self) -> None:
        self._facts, self._numbers, self._row = [], [], {}
        self._vectors = np.zeros((0, 0), dtype=np.float32)

    def check(self, vector: Vector) -> None:
        """ConfigError for a vector that cannot be compared with those that are here."""
        if self._row and vector.size != self._vectors.shape[1]:
            raise ConfigError(
                f"the memory holds vectors of {self._vectors.shape[1]} numbers and was given one of {vector.size}:"
                " they come from different embedders"
            )

    def sync(self, alive: Collection[int], newer: Iterable[tuple[int, Fact, Vector]]) -> None:
        """Become what the store holds: drop what is not `alive`, append what is `newer` than the newest here."""
        for number, fact in zip(self._numbers, self._facts, strict=True):
            if fact is not None and number not in alive:
                self.remove(fact.id)
        for number, fact, vector in newer:
            self.append(number, fact, vector)

    def copy(self) -> Shelf:
        """An independent shelf in the time it takes to copy two lists."""
        twin = Shelf()
        twin._facts, twin._numbers, twin._row = self._facts.copy(), self._numbers.copy(), self._row.copy()
        # Without room at the end, so that the first fact put into the twin moves it to an array of its own; rows that
        # are in use are never written again.
        twin._vectors = self._vectors[: len(self._facts)]
        return twin

    def _make_room(self, dimensions: int) -> None:
        """Move to arrays of twice the size and leave behind what is gone."""
        rows = list(self._row.values())
        vectors = np.zeros((max(16, 2 * len(rows)), dimensions), dtype=np.float32)
        if rows:
            vectors[: len(rows)] = self._vectors[rows]
        self._facts = [self._facts[row] for row in rows]
        self._numbers = [self._numbers[row] for row in rows]
        self._row = {fact_id: place for place, fact_id in enumerate(self._row)}
        self._vectors = vectors


class Mirror:
    """`Rows` of a store that are searched in a shelf; a store brings the two ways to change what it holds."""

    def __init__(self) -> None:
        self.shelf = Shelf()

    def write(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> Sequence[int]:
        """Store facts, a single one in place of another, and return their numbers."""
        raise NotImplementedError

    def erase(self, fact_id: str | None) -> None:
        """Delete a fact from the store; None: all of the user's."""
        raise NotImplementedError

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        return self.shelf.nearest(vector, count)

    def get(self, fact_id: str) -> Fact | None:
        return self.shelf.get(fact_id)

    def all(self) -> list[Fact]:
        return self.shelf.all()

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        for vector in vectors:
            self.shelf.check(vector)
        numbers = self.write(facts, vectors, replaces)
        if replaces is not None:
            self.shelf.remove(replaces)
        for number, fact, vector in zip(numbers, facts, vectors, strict=True):
            self.shelf.append(number, fact, vector)

    def remove(self, fact_id: str) -> None:
        self.erase(fact_id)
        self.shelf.remove(fact_id)

    def clear(self) -> None:
        self.erase(None)
        self.shelf.clear()


class Snapshot(StoredMemory):
    """A memory that lives in this process only and ends with it."""

    def __init__(self, name: str, embedder: Embedder, user: str, shelf: Shelf) -> None:
        super().__init__("a snapshot", embedder, user)
        self.name = name
        self._lock = threading.Lock()
        self._shelf = shelf

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._lock:
            yield self._shelf

    def _snapshot(self) -> Memory:
        with self._lock:
            return Snapshot(self.name, self.embedder, self.user, self._shelf.copy())

    def _release(self) -> None:
        self._shelf.clear()
