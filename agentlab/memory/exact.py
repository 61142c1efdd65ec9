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
    """The facts of one user, oldest first: `Rows`, with a store behind them where a subclass writes to one."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        # Replaced and never written to, so that a copy can share it.
        self._vectors: Vector = np.zeros((0, 0), dtype=np.float32)

    def write(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> None:
        """Write facts to the store, a single one in place of another; it comes before any change here."""

    def delete(self, fact_id: str | None) -> None:
        """Delete a fact from the store; None: all of the user's."""

    def load(self, facts: Sequence[Fact], vectors: Sequence[Vector] | Vector) -> None:
        """Become what the store holds."""
        self._facts = list(facts)
        self._vectors = np.array(vectors, dtype=np.float32)

    def nearest(self, vector: Vector, count: int) -> list[Fact]:
        if not self._facts:
            return []
        self._check(vector)
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
        for vector in vectors:
            self._check(vector)
        self.write(facts, vectors, replaces)
        if replaces is not None:
            self._drop(replaces)
        new = np.array(vectors, dtype=np.float32)
        self._vectors = np.concatenate([self._vectors, new]) if self._facts else new
        self._facts += facts

    def erase(self, fact_id: str | None) -> None:
        self.delete(fact_id)
        if fact_id is None:
            self._facts = []
        else:
            self._drop(fact_id)

    def _drop(self, fact_id: str) -> None:
        row = next(row for row, fact in enumerate(self._facts) if fact.id == fact_id)
        del self._facts[row]
        self._vectors = np.delete(self._vectors, row, axis=0)

    def _check(self, vector: Vector) -> None:
        held = self._vectors.shape[-1]
        if self._facts and vector.size != held:
            raise ConfigError(
                f"the memory holds vectors of {held} numbers and was given one of {vector.size}:"
                " they come from different embedders"
            )

    def copy(self) -> VectorTable:
        twin = VectorTable()
        twin._facts, twin._vectors = self.all(), self._vectors
        return twin
