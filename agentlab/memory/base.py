"""What all backends of a memory share: the checks, the ids, the duplicate rule and the errors.

A backend derives from `StoredMemory` and brings two things: its facts held still for an operation (`_facts`), and how
to let go of its files or connections (`_release`).
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
"""To wait for another writer."""
SLOW_SECONDS = 1.0
UNAVAILABLE_TTL_SECONDS = 60.0
"""A memory that takes longer than SLOW_SECONDS to be found away is not asked again for UNAVAILABLE_TTL_SECONDS."""
_MAX_TEXT_CHARS = 2_000_000
"""Characters of one text: 8 MB of UTF-8 at most, half of what a MongoDB document holds."""
_MAX_NAME_CHARS = 500
_A_NAME = f"a text of 1 to {_MAX_NAME_CHARS} characters"


class Rows(Protocol):
    """The facts of one user, held still for the length of one operation."""

    def nearest(self, vector: Vector, count: int) -> list[Fact]: ...
    def get(self, fact_id: str) -> Fact | None: ...
    def all(self) -> list[Fact]: ...
    def put(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None = None) -> None:
        """Store facts in their order; a single one may replace another, both or neither."""

    def erase(self, fact_id: str | None) -> int:
        """Forget a fact, or with None all of the user's; returns how many there were."""

    def copy(self) -> Rows:
        """The same facts in this process, independent of any store."""


class StoredMemory:
    """A memory on top of `Rows`: with `rows` of its own it lives in this process only, a backend brings others.

    Operations run in threads, so that no disk or server holds up the event loop, and one at a time.
    """

    failures: tuple[type[Exception], ...] = (OSError,)
    """What the backend raises when it is gone."""

    def __init__(self, name: str, where: str, embedder: Embedder, user: str, rows: Rows | None = None) -> None:
        self.name = name
        if not _is_name(user):
            raise ConfigError(f"the user of a memory must be {_A_NAME}, not {str(user)[:50]!r}")
        self.user = user
        self.embedder = embedder
        self._where = where
        self._own_rows = rows
        self._lock = threading.Lock()
        self._away: tuple[float, str] | None = None
        """Until when, by `time.monotonic`, and why it is not asked."""

    def _facts(self, *, write: bool) -> AbstractContextManager[Rows]:
        """The facts as they are now; nobody else writes before the block ends, if `write`."""
        assert self._own_rows is not None, "a backend has facts elsewhere"
        return nullcontext(self._own_rows)

    def _release(self) -> None:
        """Let go of what is open between operations."""

    async def search(
        self, text: str, vector: Vector | None, *, top_k: int = 3, min_score: float | None = None
    ) -> tuple[Fact, ...]:
        asked = self._unit(vector)
        found = await self._run_locked(lambda rows: rows.nearest(asked, top_k)) if top_k > 0 else []
        return tuple(fact for fact in found if min_score is None or fact.score is None or fact.score >= min_score)

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
        parts = self._checked([text], [vector], [created])
        return (await self._store(parts, new_id, duplicate_threshold=duplicate_threshold, about=_storable(about)))[0]

    async def ingest(
        self, texts: Sequence[str], vectors: Sequence[Vector] | Vector, *, created: Sequence[datetime], new_id: NewId
    ) -> tuple[Fact, ...]:
        parts = self._checked(texts, vectors, created)
        return tuple(added.fact for added in await self._store(parts, new_id)) if parts else ()

    async def update(
        self, fact_id: str, text: str, vector: Vector | None, *, created: datetime, new_id: NewId
    ) -> Fact | None:
        parts = self._checked([text], [vector], [created])
        # Asked first, because an id that does not exist must not use up a new one.
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
        """Let go of files and connections; what was stored stays."""

        def release() -> None:
            with self._lock:
                self._release()

        await asyncio.to_thread(release)

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

    def _checked(
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
        """Store facts, a single one in place of `replaces`, none if that is gone; or find what a single one repeats.

        Ids are made on the event loop: in threads it would be chance who gets which. Where one of them is taken, all
        is tried again with others.
        """
        units = [row for _, row, _ in parts]
        taken: Collection[str] = ()
        while True:
            named = zip(_fresh(new_id, len(parts), taken), parts, strict=True)
            facts = [Fact(id=fact_id, text=text, created=moment, about=about) for fact_id, (text, _, moment) in named]
            stored, taken = await self._run_locked(
                partial(_put, facts, units, replaces, duplicate_threshold), write=True
            )
            if not taken:
                return stored

    async def _run_locked(self, work: Callable[[Rows], T], *, write: bool = False) -> T:
        """What `work` makes of the facts, in a thread; MemoryUnavailable where they cannot be reached."""

        def guarded() -> T:
            began = time.monotonic()
            if self._away is not None and began < self._away[0]:
                raise MemoryUnavailable(self._away[1])
            try:
                with self._lock, self._facts(write=write) as rows:
                    return work(rows)
            except AgentlabError:
                raise
            except self.failures as error:
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                problem = f"the {self.name} memory at {self._where} cannot be used: {reason[:300]}"
                if time.monotonic() - began > SLOW_SECONDS:
                    self._away = time.monotonic() + UNAVAILABLE_TTL_SECONDS, problem
                raise MemoryUnavailable(problem) from error

        return await asyncio.to_thread(guarded)


def _put(
    facts: list[Fact], units: list[Vector], replaces: str | None, duplicate_threshold: float | None, rows: Rows
) -> tuple[list[AddResult], set[str]]:
    """What became of the facts; or, where one of their ids is taken, nothing and all ids that are."""
    if replaces is not None and rows.get(replaces) is None:
        return [], set()
    if duplicate_threshold is not None:
        near = rows.nearest(units[0], 1)
        if near and near[0].score is not None and near[0].score >= duplicate_threshold:
            return [AddResult(fact=near[0], is_new=False)], set()
    if len(facts) > 1 or rows.get(facts[0].id) is not None:
        held = {fact.id for fact in rows.all()}
        if not held.isdisjoint(fact.id for fact in facts):
            return [], held
    rows.put(facts, units, replaces)
    return [AddResult(fact=fact, is_new=True) for fact in facts], set()


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
        elif _is_name(candidate):
            fresh[candidate] = None
        else:
            raise ValueError(f"new_id gave {candidate!r}: an id is {_A_NAME}")
    return list(fresh)


def _is_name(name: object) -> bool:
    """Whether it is a name that every backend can keep apart from all others."""
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME_CHARS and name == _storable(name)


def _storable(text: str) -> str:
    """`text` as it stands, but half surrogate pairs, which nothing can store, are replaced."""
    return text.encode("utf-8", "replace").decode()


def check_embedder(where: str, holds: str, embedder: Embedder) -> None:
    """ConfigError unless the vectors stored at `where`, by the embedder named `holds`, are those of `embedder`."""
    if holds != embedder.name:
        raise ConfigError(
            f"{where} holds vectors of {holds}, not of {embedder.name}: use the same embedder or another folder"
        )


def _clean(text: str) -> str:
    """`text` as it is stored; ToolError for one that is empty or beyond all measure."""
    if not isinstance(text, str) or not text.strip():
        raise ToolError("there is nothing to remember: the text is empty")
    if len(text) > _MAX_TEXT_CHARS:
        raise ToolError(f"the text has {len(text):,} characters; a memory holds at most {_MAX_TEXT_CHARS:,}")
    return _storable(text)


def unit(vector: Vector | None) -> Vector:
    """`vector` at length 1, shape (d,); ValueError if it is none, or not finite."""
    row = np.array(vector if vector is not None else [], dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise ValueError("a memory is asked with one vector of finite numbers, from its embedder")
    length = np.linalg.norm(row)
    return (row / length if length else row).astype(np.float32)


def from_bytes(stored: bytes) -> Vector:
    """A vector from its stored form: little-endian float32 whatever the machine."""
    return np.frombuffer(stored, dtype="<f4").astype(np.float32)


def stored_fact(stored: Mapping[str, Any]) -> Fact:
    """A fact from what a store keeps of it: `id`, `text`, `created` as text of ISO 8601, and `about` if it has one."""
    created = datetime.fromisoformat(stored["created"])
    return Fact(id=stored["id"], text=stored["text"], created=created, about=stored.get("about", ""))


def rank(facts: Sequence[Fact], vectors: Vector, asked: Vector, count: int) -> list[Fact]:
    """The best `count` of `facts` (oldest first) by their `vectors`, shape (len(facts), d), with their scores.

    In double precision and row by row: the sums do not depend on where a vector lies, so equal facts score the same in
    every backend.
    """
    scores = (vectors.astype(np.float64) * asked.astype(np.float64)).sum(axis=1).round(6).clip(-1, 1) + 0.0
    best = np.argsort(-scores, kind="stable")[:count]
    return [replace(facts[row], score=float(scores[row])) for row in best]
