"""What all backends of a memory share: the checks, the ids, the duplicate rule and the errors.

A backend derives from `StoredMemory` and brings two things: its facts held still under a lock (`_facts`), and how to
let go of its files or connections (`_release`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentlab.core.errors import AgentlabError, ConfigError, MemoryUnavailable, ToolError
from agentlab.core.messages import Added, Fact
from agentlab.core.protocols import DUPLICATE_AT, Embedder, Memory, NewId

Vector = NDArray[np.float32]
T = TypeVar("T")

LOCK_SECONDS = 30.0
"""To wait for another writer."""
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
    def copy(self) -> Rows:
        """The same facts in this process, independent of any store."""
        ...


class StoredMemory:
    """A memory on top of `Rows`; operations run in threads, so that no disk or server holds up the event loop."""

    name: str
    failures: tuple[type[Exception], ...] = (OSError,)
    """What the backend raises when it is gone."""

    def __init__(self, where: str, embedder: Embedder, user: str) -> None:
        self.user = checked_name("the user of a memory", user)
        self.embedder = embedder
        self._where = where

    def _facts(self, *, write: bool) -> AbstractContextManager[Rows]:
        """The facts as they are now; nobody else writes before the block ends, if `write`."""
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    async def search(
        self, text: str, vector: Vector | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        asked = self._unit(vector)
        found = await self._use(lambda rows: rows.nearest(asked, top_k)) if top_k > 0 else []
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

        def store(ids: list[str], rows: Rows) -> Added | _Taken:
            known = None if duplicate_at is None else _known(rows, row, duplicate_at)
            if known is not None:
                return Added(fact=known, is_new=False)
            fact = Fact(id=ids[0], text=text, created=created)
            return _put(rows, [fact], [row]) or Added(fact=fact, is_new=True)

        return await self._with_free_ids(1, new_id, store)

    async def ingest(
        self, texts: Sequence[str], vectors: Sequence[Vector] | Vector, *, created: Sequence[datetime], new_id: NewId
    ) -> tuple[Fact, ...]:
        units = [self._unit(vector) for vector in vectors]
        parts = [(clean(text), moment) for text, moment, _ in zip(texts, created, units, strict=True)]

        def store(ids: list[str], rows: Rows) -> tuple[Fact, ...] | _Taken:
            named = zip(ids, parts, strict=True)
            facts = tuple(Fact(id=fact_id, text=text, created=moment) for fact_id, (text, moment) in named)
            return _put(rows, facts, units) or facts

        return await self._with_free_ids(len(parts), new_id, store) if parts else ()

    async def update(
        self, fact_id: str, text: str, vector: Vector | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        text, row = clean(text), self._unit(vector)

        def store(ids: list[str], rows: Rows) -> Fact | _Taken | None:
            if rows.get(fact_id) is None:
                return None
            fact = Fact(id=ids[0], text=text, created=created)
            return _put(rows, [fact], [row], replaces=fact_id) or fact

        # Asked first, because an id that does not exist must not use up a new one.
        return None if await self.get(fact_id) is None else await self._with_free_ids(1, new_id, store)

    async def delete(self, fact_id: str) -> bool:
        def remove(rows: Rows) -> bool:
            known = rows.get(fact_id) is not None
            if known:
                rows.remove(fact_id)
            return known

        return _is_id(fact_id) and await self._use(remove, write=True)

    async def get(self, fact_id: str) -> Fact | None:
        return await self._use(lambda rows: rows.get(fact_id)) if _is_id(fact_id) else None

    async def facts(self) -> tuple[Fact, ...]:
        return await self._use(lambda rows: tuple(rows.all()))

    async def clear(self) -> int:
        def clear(rows: Rows) -> int:
            count = len(rows.all())
            rows.clear()
            return count

        return await self._use(clear, write=True)

    async def snapshot(self) -> Memory:
        return await self._use(lambda rows: Snapshot(self.name, self.embedder, self.user, rows.copy()))

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

    async def _with_free_ids(self, count: int, new_id: NewId, store: Callable[[list[str], Rows], T | _Taken]) -> T:
        """What `store` makes of `count` ids; where one of them is taken, it is asked again with others.

        Ids are made on the event loop: in threads it would be chance who gets which.
        """
        taken: Collection[str] = ()
        while True:
            ids = _fresh(new_id, count, taken)
            done = await self._use(partial(store, ids), write=True)
            if not isinstance(done, _Taken):
                return done
            taken = done.ids

    async def _use(self, work: Callable[[Rows], T], *, write: bool = False) -> T:
        """What `work` makes of the facts, in a thread; MemoryUnavailable where they cannot be reached."""
        return await asyncio.to_thread(self._guarded, work, write)

    def _guarded(self, work: Callable[[Rows], T], write: bool) -> T:
        try:
            with self._facts(write=write) as rows:
                return work(rows)
        except AgentlabError:
            raise
        except self.failures as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise MemoryUnavailable(
                f"the {self.name} memory at {self._where} cannot be used: {reason[:300]}"
            ) from error


class Snapshot(StoredMemory):
    """A memory that lives in this process only and ends with it."""

    def __init__(self, name: str, embedder: Embedder, user: str, rows: Rows) -> None:
        super().__init__("a snapshot", embedder, user)
        self.name = name
        self._lock = threading.Lock()
        self._rows = rows

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        with self._lock:
            yield self._rows

    def _release(self) -> None:
        self._rows.clear()


def _known(rows: Rows, vector: Vector, duplicate_at: float) -> Fact | None:
    near = rows.nearest(vector, 1)
    return next((fact for fact in near if fact.score is not None and fact.score >= duplicate_at), None)


@dataclass(frozen=True)
class _Taken:
    """Nothing was stored, because one of the new ids is among these."""

    ids: frozenset[str]


def _put(rows: Rows, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> _Taken | None:
    if len(facts) > 1 or rows.get(facts[0].id) is not None:
        taken = frozenset(fact.id for fact in rows.all())
        if not taken.isdisjoint(fact.id for fact in facts):
            return _Taken(taken)
    rows.put(facts, vectors, replaces)
    return None


def _fresh(new_id: NewId, count: int, taken: Collection[str]) -> list[str]:
    """`count` ids that are not in `taken`; ValueError if the maker repeats itself."""
    fresh: dict[str, None] = {}
    passed_over: set[str] = set()
    while len(fresh) < count:
        candidate = new_id()
        if candidate in passed_over:
            raise ValueError(f"new_id gave {candidate!r} twice, which is taken")
        if candidate in taken or candidate in fresh:
            passed_over.add(candidate)
        elif _is_id(candidate):
            fresh[candidate] = None
        else:
            raise ValueError(f"new_id gave {candidate!r}: an id is a text of 1 to {_LONGEST_NAME} characters")
    return list(fresh)


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


def check_embedder(where: str, holds: str, embedder: Embedder) -> None:
    """ConfigError unless the vectors stored at `where`, by the embedder named `holds`, are those of `embedder`."""
    if holds != embedder.name:
        raise ConfigError(
            f"{where} holds vectors of {holds}, not of {embedder.name}: use the same embedder or another folder"
        )


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


def to_bytes(vector: Vector) -> bytes:
    """The stored form of a vector: little-endian float32 whatever the machine."""
    return vector.astype("<f4").tobytes()


def from_bytes(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4").astype(np.float32)


def rank(facts: Sequence[Fact], vectors: Vector, asked: Vector, count: int) -> list[Fact]:
    """The best `count` of `facts` (oldest first) by their `vectors`, shape (len(facts), d), with their scores.

    In double precision and row by row: the sums do not depend on where a vector lies, so equal facts score the same in
    every backend.
    """
    scores = (vectors.astype(np.float64) * asked.astype(np.float64)).sum(axis=1).round(6).clip(-1, 1) + 0.0
    best = np.argsort(-scores, kind="stable")[:count]
    return [replace(facts[row], score=float(scores[row])) for row in best]
