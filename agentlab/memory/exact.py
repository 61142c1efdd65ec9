"""Facts with their vectors in this process, searched exactly: what SQLite, the text file and MongoDB look things up in.

table.put([fact], [vector])
table.nearest(vector, 3)            # about a millisecond at 10,000 facts of 384 dimensions
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Fact
from agentlab.memory.base import Vector, rank

_SLACK = 1e-5
"""More than the single-precision search can be off by; what comes this near to the last place is ranked exactly."""


class VectorTable:
    """The facts of one user, oldest first; `Rows` without a store behind them."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        # Replaced and never written to, so that a copy can share it.
        self._vectors: Vector = np.zeros((0, 0), dtype=np.float32)

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        if not self._facts:
            return []
        self.check([vector])
        # Not a matrix product: its threads take twenty times as long as soon as a model runs on the same cores.
        rough = np.vecdot(self._vectors, vector)
        others = max(0, len(rough) - count)
        rows = np.flatnonzero(rough >= np.partition(rough, others)[others] - _SLACK)
        return rank([self._facts[row] for row in rows], self._vectors[rows], vector, count)

    def get(self, fact_id: str) -> Fact | None:
        return next((fact for fact in self._facts if fact.id == fact_id), None)

    def all(self) -> list[Fact]:
        return list(self._facts)

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        self.check(vectors)
        if replaces is not None:
            self._drop(replaces)
        new = np.array(vectors, dtype=np.float32)
        self._vectors = np.concatenate([self._vectors, new]) if self._facts else new
        self._facts += facts

    def remove(self, fact_id: str) -> None:
        self._drop(fact_id)

    def _drop(self, fact_id: str) -> None:
        row = next(row for row, fact in enumerate(self._facts) if fact.id == fact_id)
        del self._facts[row]
        self._vectors = np.delete(self._vectors, row, axis=0)

    def clear(self) -> None:
        self._facts = []

    def check(self, vectors: Sequence[Vector]) -> None:
        """ConfigError for vectors that cannot be compared with those that are here."""
        held = self._vectors.shape[1]
        given = next((vector.size for vector in vectors if vector.size != held), held)
        if self._facts and given != held:
            raise ConfigError(
                f"the memory holds vectors of {held} numbers and was given one of {given}:"
                " they come from different embedders"
            )

    def copy(self) -> VectorTable:
        twin = VectorTable()
        twin._facts, twin._vectors = self.all(), self._vectors
        return twin


class CachedRows(VectorTable):
    """What a store holds of one user; a change is made there first. A store brings the two ways to change it."""

    def store(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> None:
        """Write facts, a single one in place of another."""
        raise NotImplementedError

    def erase(self, fact_id: str | None) -> None:
        """Delete a fact from the store; None: all of the user's."""
        raise NotImplementedError

    def load(self, facts: Sequence[Fact], vectors: Sequence[Vector]) -> None:
        """Become what the store holds."""
        super().clear()
        if facts:
            super().put(facts, vectors)

    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        self.check(vectors)
        self.store(facts, vectors, replaces)
        super().put(facts, vectors, replaces)

    def remove(self, fact_id: str) -> None:
        self.erase(fact_id)
        super().remove(fact_id)

    def clear(self) -> None:
        self.erase(None)
        super().clear()
