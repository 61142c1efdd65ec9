"""Code that all memory backends share: validation, ids, the duplicate rule and errors.

A backend derives from `StoredMemory` and overrides two methods. `_facts` locks its facts for one operation, and
`_release` closes its files or connections.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from agentlab.core.errors import AgentlabError, ConfigError, MemoryUnavailable, ToolError
from agentlab.core.messages import AddResult, Fact
from agentlab.core.protocols import DUPLICATE_THRESHOLD, Embedder, Memory, NewId

Vector = NDArray[np.float32]
T = TypeVar("T")
_Part = tuple[str, Vector, datetime]
"""Text, unit vector and time of a fact without an id."""

LOCK_SECONDS = 30.0
"""Seconds to wait for another writer."""
SLOW_SECONDS = 1.0
"""Seconds after which a failed operation counts as slow."""
RETRY_SECONDS = 60.0
"""Seconds between the attempts in the background after a slow failure."""
_MAX_TEXT_CHARS = 2_000_000
"""Characters of one text: at most 8 MB of UTF-8, half the limit of a MongoDB document."""
_MAX_NAME_CHARS = 500
_A_NAME = f"a text of 1 to {_MAX_NAME_CHARS} characters"


class Rows(Protocol):
    """Facts of one user, locked for one operation."""

    def nearest(self, vector: Vector, count: int) -> list[Fact]: ...
    def get(self, fact_id: str) -> Fact | None: ...
    def all(self) -> list[Fact]: ...
    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        """Store facts in their order. A single fact may replace another one in the same step."""

    def erase(self, fact_id: str | None) -> int:
        """Delete a fact, or with None all facts of the user, and return the number of deleted facts."""

    def copy(self) -> Rows:
        """Return the same facts in this process, independent of any store."""


class StoredMemory:
    """Memory on top of `Rows`. With `rows` it exists in this process only; a backend provides stored ones.

    Operations run one at a time in a thread, so that no disk or server blocks the event loop.
    """

    failures: tuple[type[Exception], ...] = (OSError,)
    """Exceptions that the backend raises when it is unavailable."""

    def __init__(self, name: str, location: str, embedder: Embedder, user: str, rows: Rows | None = None) -> None:
        self.name = name
        if not _is_name(user):
            raise ConfigError(f"the user of a memory must be {_A_NAME}, not {str(user)[:50]!r}")
        self.user = user
        self.embedder = embedder
        self._location = location
        self._own_rows = rows
        self._lock = threading.Lock()
        self._problem = ""
        """Slow failure of the last attempt; while a thread retries, every operation raises it at once."""
        self._closed = threading.Event()

    def _facts(self, *, write: bool) -> AbstractContextManager[Rows]:
        """Yield the current facts. With `write`, no other writer changes them before the block ends."""
        assert self._own_rows is not None, "a backend overrides this method"
        return nullcontext(self._own_rows)

    def _release(self) -> None:
        """Close files or connections that are open between operations."""

    async def search(
        self, text: str, vector: Vector | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        query = self._unit(vector)
        facts = await self._run_locked(lambda rows: rows.nearest(query, top_k)) if top_k > 0 else []
        return tuple(fact for fact in facts if min_score is None or fact.score is None or fact.score >= min_score)

    async def add(
        self,
        text: str,
        vector: Vector | None,
        *,
        created: datetime,
        new_id: NewId,
        duplicate_threshold: float | None = DUPLICATE_THRESHOLD,
        about: str = "",
    ) -> AddResult:
        parts = self._validated([text], [vector], [created])
        return (await self._store(parts, new_id, duplicate_threshold=duplicate_threshold, about=_storable(about)))[0]

    async def ingest(
        self, texts: Sequence[str], vectors: Sequence[Vector] | Vector, *, created: Sequence[datetime], new_id: NewId
    ) -> tuple[Fact, ...]:
        parts = self._validated(texts, vectors, created)
        return tuple(added.fact for added in await self._store(parts, new_id)) if parts else ()

    async def update(
        self, fact_id: str, text: str, vector: Vector | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        parts = self._validated([text], [vector], [created])
        # Look up the old fact first: an unknown id must not use up a new one.
        old = await self.get(fact_id)
        if old is None:
            return None
        stored = await self._store(parts, new_id, replaces=fact_id, about=old.about)
        return stored[0].fact if stored else None

    async def delete(self, fact_id: str) -> bool:
        return _is_name(fact_id) and await self._run_locked(lambda rows: rows.erase(fact_id), write=True) > 0

    async def get(self, fact_id: str) -> Fact | None:
        return await self._run_locked(lambda rows: rows.get(fact_id)) if _is_name(fact_id) else None

    async def facts(self) -> tuple[Fact, ...]:
        return await self._run_locked(lambda rows: tuple(rows.all()))

    async def clear(self) -> int:
        return await self._run_locked(lambda rows: rows.erase(None), write=True)

    async def snapshot(self) -> Memory:
        return await self._run_locked(
            lambda rows: StoredMemory(self.name, "a snapshot", self.embedder, self.user, rows.copy())
        )

    async def close(self) -> None:
        """Close files and connections; stored facts remain."""
        self._closed.set()

        def release() -> None:
            with self._lock:
                self._release()

        await asyncio.to_thread(release)

    async def drop(self) -> None:
        """Delete all facts and close the store for good."""
        try:
            await self.clear()
        finally:
            await self.close()

    def _unit(self, vector: Vector | None) -> Vector:
        row = unit(vector)
        if self.embedder.dimensions not in (0, row.size):
            raise ValueError(f"the vector has {row.size} numbers; embed the text with {self.embedder.name}")
        return row

    def _validated(
        self, texts: Sequence[str], vectors: Sequence[Vector | None] | Vector, created: Sequence[datetime]
    ) -> list[_Part]:
        return list(zip(map(_clean, texts), map(self._unit, vectors), created, strict=True))

    async def _store(
        self,
        parts: list[_Part],
        new_id: NewId,
        *,
        replaces: str | None = None,
        duplicate_threshold: float | None = None,
        about: str = "",
    ) -> list[AddResult]:
        """Store facts, or return the existing fact that a single text duplicates.

        `replaces` is the id of the fact that a single new one replaces. If that id is missing, nothing is stored. Ids
        are made on the event loop, because the order of threads is random. If an id is taken, all facts get new ids.
        """
        units = [row for _, row, _ in parts]
        used_ids: Collection[str] = ()
        while True:
            named = zip(_fresh(new_id, len(parts), used_ids), parts, strict=True)
            facts = [Fact(id=fact_id, text=text, created=moment, about=about) for fact_id, (text, _, moment) in named]
            stored, used_ids = await self._run_locked(
                partial(_put, facts, units, replaces, duplicate_threshold), write=True
            )
            if not used_ids:
                return stored

    async def _run_locked(self, work: Callable[[Rows], T], *, write: bool = False) -> T:
        """Run `work` on the facts in a thread and return its result; raise MemoryUnavailable if the backend fails."""

        def guarded() -> T:
            self._raise_problem()
            started = time.monotonic()
            try:
                with self._lock:
                    # Another operation may have failed while this one waited.
                    self._raise_problem()
                    with self._facts(write=write) as rows:
                        return work(rows)
            except AgentlabError:
                raise
            except self.failures as error:
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                problem = f"the {self.name} memory at {self._location} cannot be used: {reason[:300]}"
                if time.monotonic() - started > SLOW_SECONDS and not self._problem:
                    self._problem = problem
                    self._closed.clear()
                    threading.Thread(target=self._retry, daemon=True).start()
                raise MemoryUnavailable(problem) from error

        return await asyncio.to_thread(guarded)

    def _raise_problem(self) -> None:
        if self._problem:
            raise MemoryUnavailable(self._problem)

    def _retry(self) -> None:
        """Try every RETRY_SECONDS to read the facts, until the backend responds or the memory is closed."""
        while not self._closed.wait(RETRY_SECONDS):
            try:
                with self._lock, self._facts(write=False):
                    break
            except AgentlabError:
                break  # the next operation reports it
            except self.failures:
                continue
        self._problem = ""


def _put(
    facts: list[Fact], units: list[Vector], replaces: str | None, duplicate_threshold: float | None, rows: Rows
) -> tuple[list[AddResult], set[str]]:
    """Store `facts` and return their results; if one of their ids is taken, return no results and all taken ids."""
    if replaces is not None and rows.get(replaces) is None:
        return [], set()
    if duplicate_threshold is not None:
        # A fact about the same speaker precedes nearer ones of others.
        nearest = rows.nearest(units[0], 10)
        if near := [fact for fact in nearest if fact.score is not None and fact.score >= duplicate_threshold]:
            stored = next((fact for fact in near if fact.about == facts[0].about), near[0])
            differs = stored.about != facts[0].about or words_of(stored.text) != words_of(facts[0].text)
            return [AddResult(fact=stored, is_new=False, differs=differs)], set()
    if len(facts) > 1 or rows.get(facts[0].id) is not None:
        used_ids = {fact.id for fact in rows.all()}
        if not used_ids.isdisjoint(fact.id for fact in facts):
            return [], used_ids
    rows.put(facts, units, replaces)
    return [AddResult(fact=fact, is_new=True) for fact in facts], set()


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation at their ends; digits and signs count."""
    return [word for token in text.casefold().split() if (word := token.strip(".,;:!?\"'()\u3002\uff0c\uff01"))]


def _fresh(new_id: NewId, count: int, used_ids: Collection[str]) -> list[str]:
    """Return `count` ids that are not in `used_ids`; raise ValueError if `new_id` repeats one or returns no name."""
    fresh: dict[str, None] = {}
    rejected: set[str] = set()
    while len(fresh) < count:
        candidate = new_id()
        if candidate in rejected:
            raise ValueError(f"new_id returned the taken id {candidate!r} twice; it must return unused ids")
        if candidate in used_ids or candidate in fresh:
            rejected.add(candidate)
        elif _is_name(candidate):
            fresh[candidate] = None
        else:
            raise ValueError(f"new_id returned {candidate!r}; an id must be {_A_NAME}")
    return list(fresh)


def _is_name(name: object) -> bool:
    """Return True if every backend can store `name` without confusing it with another one."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS and name == _storable(name)


def _storable(text: str) -> str:
    """Return `text` with lone surrogates replaced, which no store accepts."""
    return text.encode("utf-8", "replace").decode()


def check_embedder(location: str, stored: str, embedder: Embedder) -> None:
    """Raise ConfigError unless `embedder` has the name `stored`, the embedder of the store at `location`."""
    if stored != embedder.name:
        raise ConfigError(
            f"{location} holds vectors of {stored}, not of {embedder.name}: use the same embedder or another folder"
        )


def check_dimensions(stored: int, given: int) -> None:
    """Raise ConfigError if a vector of `given` numbers meets a store with vectors of `stored` numbers."""
    if stored != given:
        raise ConfigError(
            f"the memory holds vectors of {stored} numbers and was given one of {given}:"
            " they come from different embedders"
        )


def _clean(text: str) -> str:
    """Return `text` in the form that is stored; raise ToolError if it is empty or too long."""
    if not isinstance(text, str) or not text.strip():
        raise ToolError("there is nothing to remember: the text is empty")
    if len(text) > _MAX_TEXT_CHARS:
        raise ToolError(f"the text has {len(text):,} characters; a memory holds at most {_MAX_TEXT_CHARS:,}")
    return _storable(text)


def unit(vector: Vector | None) -> Vector:
    """Return `vector` at length 1, shape (d,); raise ValueError if it is missing, empty or not finite."""
    row = np.array(vector if vector is not None else [], dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise ValueError("a memory needs one vector of finite numbers; make it with the embedder of the memory")
    length = np.linalg.norm(row)
    return (row / length if length else row).astype(np.float32)


def from_bytes(stored: bytes) -> Vector:
    """Return a vector from its stored form, little-endian float32 on every machine."""
    return np.frombuffer(stored, dtype="<f4").astype(np.float32)


def stored_fact(stored: Mapping[str, Any]) -> Fact:
    """Return a fact from its stored row: `id`, `text`, `created` in ISO 8601, and optionally `about`."""
    created = datetime.fromisoformat(stored["created"])
    return Fact(id=stored["id"], text=stored["text"], created=created, about=stored.get("about", ""))


def rank(facts: Sequence[Fact], vectors: Vector, query: Vector, count: int) -> list[Fact]:
    """Return the best `count` of `facts` (oldest first) with their scores; `vectors` has shape (len(facts), d).

    Scores are summed in double precision and row by row. A sum then does not depend on the position of its vector, so
    equal facts score the same in every backend.
    """
    scores = (vectors.astype(np.float64) * query.astype(np.float64)).sum(axis=1).round(6).clip(-1, 1) + 0.0
    best = np.argsort(-scores, kind="stable")[:count]
    return [replace(facts[row], score=float(scores[row])) for row in best]
