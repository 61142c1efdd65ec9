"""What all backends of a memory share: the checks, the ids, the duplicate rule and the errors.

A backend derives from `StoredMemory` and brings three things: its facts held still under a lock (`_facts`), a copy of
them (`_snapshot`), and how to let go of its files or connections (`_release`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentlab.core.errors import AgentlabError, ConfigError, MemoryUnavailable, ToolError
from agentlab.core.messages import Added, Fact
from agentlab.core.protocols import DUPLICATE_AT, Embedder, Memory, NewId

Vector = NDArray[np.float32]
T = TypeVar("T")

_LONGEST = 2_000_000
"""Characters of one text: 8 MB of UTF-8 at most, half of what a MongoDB document holds."""
_LONGEST_NAME = 500


class Rows(Protocol):
    """The facts of one user, held still for the length of one operation."""

    def nearest(self, vector: Vector, count: int) -> list[Fact]: ...
    def get(self, fact_id: str) -> Fact | None: ...
    def all(self) -> list[Fact]: ...
    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        """Store facts in their order; a single one may replace another, both or neither."""
        ...

    def remove(self, fact_id: str) -> None: ...
    def clear(self) -> None: ...


class StoredMemory:
    """A memory on top of `Rows`; operations run in threads, so that no disk or server holds up the event loop."""

    name: str
    failures: tuple[type[Exception], ...] = (OSError,)
    """What the backend raises when it is gone."""

    def __init__(self, where: str, embedder: Embedder, user: str) -> None:
        self.user = checked_name("the user of a memory", user)
        self.embedder = embedder
        self._where = where
        self._loop: asyncio.AbstractEventLoop | None = None

    def _facts(self, *, write: bool) -> AbstractContextManager[Rows]:
        """The facts as they are now; nobody else writes before the block ends, if `write`."""
        raise NotImplementedError

    def _snapshot(self) -> Memory:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    async def search(
        self, text: str, vector: Vector | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        asked = self._unit(vector)

        def work() -> list[Fact]:
            with self._facts(write=False) as rows:
                return rows.nearest(asked, top_k)

        found = await self._run(work) if top_k > 0 else []
        return tuple(fact for fact in found if min_score is None or fact.score is None or fact.score >= min_score)

    async def add(
        self,
        text: str,
        vector: Vector | None,
        *,
        created: datetime,
        new_id: NewId,
        duplicate_at: float | None = DUPLICATE_AT,
    ) -> Added:
        text, row = clean(text), self._unit(vector)

        def work(fact: Fact) -> Added | None:
            with self._facts(write=True) as rows:
                known = None if duplicate_at is None else _known(rows, row, duplicate_at)
                if known is not None:
                    return Added(fact=known, is_new=False)
                if rows.get(fact.id) is not None:
                    return None
                rows.put([fact], [row])
                return Added(fact=fact, is_new=True)

        taken: frozenset[str] = frozenset()
        while True:
            fact = Fact(id=_fresh(new_id, taken), text=text, created=created)
            added = await self._run(work, fact)
            if added is not None:
                return added
            taken = frozenset(fact.id for fact in await self.facts())

    async def ingest(
        self, texts: Sequence[str], vectors: Sequence[Vector] | Vector, *, created: Sequence[datetime], new_id: NewId
    ) -> tuple[Fact, ...]:
        units = [self._unit(vector) for vector in vectors]
        parts = [(clean(text), moment) for text, moment, _ in zip(texts, created, units, strict=True)]

        def work(facts: list[Fact]) -> frozenset[str] | None:
            with self._facts(write=True) as rows:
                taken = frozenset(fact.id for fact in rows.all())
                if not taken.isdisjoint(fact.id for fact in facts):
                    return taken
                rows.put(facts, units)
                return None

        taken: frozenset[str] | None = frozenset()
        facts: list[Fact] = []
        while parts and taken is not None:
            given = set(taken)
            facts = []
            for text, moment in parts:
                facts.append(Fact(id=_fresh(new_id, given), text=text, created=moment))
                given.add(facts[-1].id)
            taken = await self._run(work, facts)
        return tuple(facts)

    async def update(
        self, fact_id: str, text: str, vector: Vector | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        text, row = clean(text), self._unit(vector)

        def work(fact: Fact) -> Fact | frozenset[str] | None:
            with self._facts(write=True) as rows:
                if not _is_id(fact_id) or rows.get(fact_id) is None:
                    return None
                if rows.get(fact.id) is not None:
                    return frozenset(fact.id for fact in rows.all())
                rows.put([fact], [row], fact_id)
                return fact

        if await self.get(fact_id) is None:
            return None
        taken: frozenset[str] = frozenset()
        while True:
            done = await self._run(work, Fact(id=_fresh(new_id, taken), text=text, created=created))
            if not isinstance(done, frozenset):
                return done
            taken = done

    async def delete(self, fact_id: str) -> bool:
        def work() -> bool:
            with self._facts(write=True) as rows:
                if rows.get(fact_id) is None:
                    return False
                rows.remove(fact_id)
                return True

        return _is_id(fact_id) and await self._run(work)

    async def get(self, fact_id: str) -> Fact | None:
        def work() -> Fact | None:
            with self._facts(write=False) as rows:
                return rows.get(fact_id)

        return await self._run(work) if _is_id(fact_id) else None

    async def facts(self) -> tuple[Fact, ...]:
        def work() -> tuple[Fact, ...]:
            with self._facts(write=False) as rows:
                return tuple(rows.all())

        return await self._run(work)

    async def clear(self) -> int:
        def work() -> int:
            with self._facts(write=True) as rows:
                count = len(rows.all())
                rows.clear()
                return count

        return await self._run(work)

    async def snapshot(self) -> Memory:
        return await self._run(self._snapshot)

    async def close(self) -> None:
        """Let go of files and connections; what was stored stays."""
        await asyncio.to_thread(self._release)

    async def drop(self) -> None:
        """Forget everything and close: the end of a store that nobody is to open again."""
        try:
            await self.clear()
        finally:
            await self.close()

    def _unit(self, vector: Vector | None) -> Vector:
        row = unit(vector)
        if self.embedder.dimensions not in (0, row.size):
            raise ValueError(f"a vector of {row.size} numbers is not one of {self.embedder.name}")
        return row

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        self._loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._guarded, work, *arguments)

    def _guarded(self, work: Callable[..., T], *arguments: object) -> T:
        try:
            return work(*arguments)
        except AgentlabError:
            raise
        except self.failures as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise MemoryUnavailable(
                f"the {self.name} memory at {self._where} cannot be used: {reason[:300]}"
            ) from error


def _known(rows: Rows, vector: Vector, duplicate_at: float) -> Fact | None:
    near = rows.nearest(vector, 1)
    return next((fact for fact in near if fact.score is not None and fact.score >= duplicate_at), None)


def _fresh(new_id: NewId, taken: Container[str]) -> str:
    """An id that is not in `taken`; ValueError if the maker repeats itself."""
    given: set[str] = set()
    while (candidate := new_id()) in taken:
        if candidate in given:
            raise ValueError(f"new_id gave {candidate!r} twice, which is taken")
        given.add(candidate)
    if not _is_id(candidate):
        raise ValueError(f"new_id gave {candidate!r}: an id is a text of 1 to {_LONGEST_NAME} characters")
    return candidate


def _is_id(fact_id: object) -> bool:
    """Whether an id from a model could be one at all; what could not is simply not found."""
    return isinstance(fact_id, str) and 0 < len(fact_id) <= _LONGEST_NAME and _is_unicode(fact_id)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_name(what: str, name: str) -> str:
    """`name` as it stands; ConfigError unless it is a text that every backend can keep apart from all others."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not _is_unicode(name):
        raise ConfigError(f"{what} must be a text of 1 to {_LONGEST_NAME} characters, not {str(name)[:50]!r}")
    return name


def clean(text: str) -> str:
    """`text` as it is stored: as it stands, but half surrogate pairs, which nothing can store, are replaced."""
    if not isinstance(text, str) or not text.strip():
        raise ToolError("there is nothing to remember: the text is empty")
    if len(text) > _LONGEST:
        raise ToolError(f"the text has {len(text):,} characters; a memory holds at most {_LONGEST:,}")
    return text.encode("utf-8", "replace").decode()


def unit(vector: Vector | None) -> Vector:
    """`vector` at length 1, shape (d,); ValueError if it is none, or not finite."""
    row = np.array(vector if vector is not None else [], dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise ValueError("a memory is asked with one vector of finite numbers, from its embedder")
    length = np.linalg.norm(row)
    return (row / length if length else row).astype(np.float32)


def pack(vector: Vector) -> bytes:
    """The stored form of a vector: little-endian float32 whatever the machine."""
    return vector.astype("<f4").tobytes()


def unpack(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4").astype(np.float32)


def rank(facts: Sequence[Fact], vectors: Vector, asked: Vector, count: int) -> list[Fact]:
    """The best `count` of `facts` (oldest first) by their `vectors`, shape (len(facts), d), with their scores.

    In double precision and row by row: the sums do not depend on where a vector lies, so equal facts score the same in
    every backend.
    """
    scores = (vectors.astype(np.float64) * asked.astype(np.float64)).sum(axis=1).round(6).clip(-1, 1) + 0.0
    best = np.argsort(-scores, kind="stable")[:count]
    return [replace(facts[row], score=float(scores[row])) for row in best]
