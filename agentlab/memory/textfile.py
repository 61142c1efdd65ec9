"""Memory in a text file that people can read, `memory.txt`, for any number of users, threads and processes.

    <MEMORY module="memory" user="ann" id="memory_1" time="2026-01-05T10:00:00">
    Ann plays the oboe.
    </MEMORY>

A new fact is appended; any other change writes a new file and renames it over the old one. The vectors are in
`memory.vectors`, keyed by the text. If that file is lost or a person edits a fact, the backend computes them again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, read_bytes, write_atomically
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder
from agentlab.core.strict_json import load_json
from agentlab.memory.base import Rows, StoredMemory, T, Vector, check_embedder, from_bytes, unit
from agentlab.memory.exact import VectorTable
from agentlab.memory.tagged_log import Entry, TaggedLog, append, render_entries

KEPT_IN = "memory.txt"
_FIRST = "Long-term memory of agentlab, embedded with "
_MODULE = "memory"


def connect(location: str | Path, embedder: Embedder, *, user: str = "user") -> TextfileMemory:
    """Open or create `location`/memory.txt; raise ConfigError if it cannot be read or has another embedder."""
    path = Path(location) / KEPT_IN
    memory = TextfileMemory(path, embedder, user)
    try:
        memory.prepare()
    except (MemoryUnavailable, _Damaged) as error:
        raise ConfigError(f"{path}: cannot be opened as a memory ({error})") from error
    return memory


class _Damaged(Exception):
    """Error in the content of the file."""


class TextfileMemory(StoredMemory):
    failures = (OSError, _Damaged)

    def __init__(self, path: Path, embedder: Embedder, user: str) -> None:
        super().__init__("textfile", str(path), embedder, user)
        self._log = TaggedLog(path)
        self._vector_file = path.with_suffix(".vectors")
        self._entries: dict[str, Entry] = {}
        self._table = VectorTable(self)
        self._loop: asyncio.AbstractEventLoop | None = None

    def prepare(self) -> None:
        """Create a new file, or check that the existing one can be read."""
        path = self._log.path
        with self._log.locked():
            if not path.exists() or not path.stat().st_size:
                write_atomically(path, f"{_FIRST}{self.embedder.name}\n")
            first = self._log.text().partition("\n")[0]
            if not first.startswith(_FIRST):
                raise _Damaged(f"line 1: expected '{_FIRST}...'")
            check_embedder(str(path), first.removeprefix(_FIRST), self.embedder)
            self._read()

    async def _run_locked(self, work: Callable[[Rows], T], *, write: bool = False) -> T:
        self._loop = asyncio.get_running_loop()
        return await super()._run_locked(work, write=write)

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[Rows]:
        self._log.path.stat()  # the lock would recreate a deleted folder
        with self._log.locked():
            self._entries = self._read()
            facts = [
                Fact(id=name, text=entry.text, created=entry.time, about=entry.facts.get("about", ""))
                for name, entry in self._entries.items()
            ]
            if facts != self._table.all():
                self._table.load(facts, self._vectors_of(facts))
            yield self._table

    def _read(self) -> dict[str, Entry]:
        """Return the user's entries by the id of their fact; raise _Damaged if an entry is no fact."""
        entries: dict[str, Entry] = {}
        for entry in self._log.entries():
            if entry.module == _MODULE and entry.facts.get("user") == self.user:
                name = entry.facts.get("id")
                if not name or name in entries or entry.time == datetime.min:
                    raise _Damaged(f"the fact {entry.text[:50]!r} has no unique id or no readable time")
                entries[name] = entry
        return entries

    def _vectors_of(self, facts: Sequence[Fact]) -> list[Vector]:
        stored = _read_vectors(self._vector_file)
        if missing := list(dict.fromkeys(fact.text for fact in facts if _key(fact.text) not in stored)):
            # The event loop awaits this thread, so it can embed meanwhile.
            assert self._loop is not None, "`_run_locked` sets the loop"
            vectors = asyncio.run_coroutine_threadsafe(self.embedder.embed(missing), self._loop)
            stored |= dict(zip(map(_key, missing), map(unit, vectors.result()), strict=True))
        return [stored[_key(fact.text)] for fact in facts]

    def write_rows(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> None:
        # Write the vectors first: a reader of a fact then finds its vector.
        append(self._vector_file, _vector_lines(dict(zip([_key(fact.text) for fact in facts], vectors, strict=True))))
        new = [Entry(module=_MODULE, time=fact.created, text=fact.text, facts=self._attributes(fact)) for fact in facts]
        if replaces is None:
            append(self._log.path, render_entries(new))
        else:
            self._log.replace([self._entries[replaces]], new)

    def erase_rows(self, fact_id: str | None) -> None:
        self._log.replace(self._entries.values() if fact_id is None else [self._entries[fact_id]], [])
        keys = {_key(entry.text) for entry in self._log.entries()}
        vectors = {key: vector for key, vector in _read_vectors(self._vector_file).items() if key in keys}
        write_atomically(self._vector_file, _vector_lines(vectors))

    def _attributes(self, fact: Fact) -> dict[str, str]:
        return {"user": self.user, "id": fact.id} | ({"about": fact.about} if fact.about else {})


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_vectors(path: Path) -> dict[str, Vector]:
    """Return the vectors by the key of their text; skip unreadable lines, because their vectors can be computed."""
    vectors: dict[str, Vector] = {}
    for line in read_bytes(path, MAX_GENERATED_FILE_BYTES).split(b"\n") if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError):
            key, packed = load_json(line)
            vectors[key] = from_bytes(base64.b64decode(packed))
    return vectors


def _vector_lines(vectors: Mapping[str, Vector]) -> bytes:
    packed = {key: base64.b64encode(vector.astype("<f4").tobytes()).decode() for key, vector in vectors.items()}
    return "".join(f"{json.dumps(pair)}\n" for pair in packed.items()).encode()
