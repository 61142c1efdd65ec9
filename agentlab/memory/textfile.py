"""Memory in a text file that people can read, `memory.txt`, for any number of users, threads and processes.

    [fact "memory_1" of "ann" at 2026-01-05T10:00:00]
    > Ann plays the oboe.
    [end]

Lines of a fact begin with `> `, so a text can hold anything, these brackets too; a backslash and what does not print is
written as an escape. A new fact is one append; anything else writes a new file beside the old one and takes its place.
A fact without its `[end]`, which is how a crash leaves one, was never stored. The vectors are in `memory.vectors` by
the content of the text: if that file is lost, or a person edits a fact, they are computed anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock

from agentlab.core.errors import ConfigError
from agentlab.core.files import replace_file
from agentlab.core.messages import Fact
from agentlab.core.protocols import Embedder, Memory
from agentlab.memory.base import StoredMemory, Vector, pack, unit, unpack
from agentlab.memory.exact import Mirror, Snapshot

_WAIT = 30.0
"""Seconds to wait for another writer."""
_FIRST = "Memory of agentlab, embedded with "
_START = b"[fact "
_END = "[end]"
_HEAD = re.compile(r'\[fact ("(?:[^"\\]|\\.)*") of ("(?:[^"\\]|\\.)*") at (\S+)\]')
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(\\))")
_UNPRINTABLE = re.compile(r"[\\\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Controls (not tab and newline), marks that turn the writing direction round, and the backslash itself."""
_KEY = 32
"""Bytes in front of each vector: the SHA-256 of its text."""


def connect(where: str | Path, embedder: Embedder, *, user: str = "user") -> TextfileMemory:
    """Open or create `where`/memory.txt; ConfigError names the line if it cannot be read."""
    path = Path(where) / "memory.txt"
    memory = TextfileMemory(path, embedder, user)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        memory.prepare()
    except (OSError, _Damaged) as error:
        raise ConfigError(f"{path}: cannot be opened as a memory ({error})") from error
    return memory


class _Damaged(Exception):
    """The file is not what a memory writes; names the line."""


@dataclass(frozen=True)
class _Entry:
    user: str
    fact: Fact


class TextfileMemory(StoredMemory):
    name = "textfile"
    failures = (OSError, _Damaged)

    def __init__(self, path: Path, embedder: Embedder, user: str) -> None:
        super().__init__(str(path), embedder, user)
        self._path = path
        self._lock = threading.Lock()
        self._others = FileLock(f"{path}.lock", timeout=_WAIT)
        self._rows = _TextRows(path, embedder.name, self.user, self._embed)

    def prepare(self) -> None:
        """Begin a new file, or see that an old one can be read."""
        with self._others:
            if not self._path.exists() or not self._path.stat().st_size:
                replace_file(self._path, f"{_FIRST}{self.embedder.name}\n".encode())
            _parse(self._path.read_bytes(), self.embedder.name)

    def _embed(self, texts: list[str]) -> list[Vector]:
        """Vectors for texts that have lost theirs, from the event loop that is waiting for this thread."""
        assert self._loop is not None

        async def embed() -> Vector:
            return await self.embedder.embed(texts)

        return [unit(row) for row in asyncio.run_coroutine_threadsafe(embed(), self._loop).result()]

    @contextmanager
    def _facts(self, *, write: bool) -> Iterator[_TextRows]:
        with self._lock:
            self._path.stat()  # the lock would make a folder that is gone anew
            with self._others if write else nullcontext():
                self._rows.sync()
                yield self._rows

    def _snapshot(self) -> Memory:
        with self._facts(write=False) as rows:
            return Snapshot(self.name, self.embedder, self.user, rows.shelf.copy())

    def _release(self) -> None:
        with self._lock:
            self._rows.forget()


class _TextRows(Mirror):
    """The entries of the file, those of one user on the shelf."""

    def __init__(self, path: Path, embedder: str, user: str, embed: Callable[[list[str]], list[Vector]]) -> None:
        super().__init__()
        self._path = path
        self._vectors = _VectorFile(path.with_suffix(".vectors"))
        self._embedder = embedder
        self._user = user
        self._embed = embed
        self.forget()

    def forget(self) -> None:
        self.shelf.clear()
        self._entries: list[_Entry] = []
        self._whole = True
        self._state: tuple[int, ...] = ()

    def sync(self) -> None:
        """Bring entries and shelf to what the file holds."""
        state = _state(self._path)
        if state == self._state:
            return
        entries, whole = _parse(self._path.read_bytes(), self._embedder)
        mine = [entry.fact for entry in entries if entry.user == self._user]
        known = self.shelf.all()
        if mine[: len(known)] != known:
            self.shelf.clear()
            known = []
        fresh = mine[len(known) :]
        self.shelf.put(fresh, self._vectors_of(fresh))
        self._entries, self._whole, self._state = entries, whole, state

    def _vectors_of(self, facts: list[Fact]) -> list[Vector]:
        stored = self._vectors.read() if facts else {}
        lost = list(dict.fromkeys(fact.text for fact in facts if _key(fact.text) not in stored))
        if lost:
            stored |= dict(zip(map(_key, lost), self._embed(lost), strict=True))
        return [stored[_key(fact.text)] for fact in facts]

    def write(self, facts: Sequence[Fact], vectors: Sequence[Vector], replaces: str | None) -> Sequence[int]:
        entries = [_Entry(self._user, fact) for fact in facts]
        # First the vectors: whoever reads a fact finds its own.
        self._vectors.append({_key(fact.text): vector for fact, vector in zip(facts, vectors, strict=True)})
        if replaces is None and self._whole:
            _append(self._path, b"".join(map(_format, entries)))
            self._entries += entries
            self._state = _state(self._path)
        else:
            self._rewrite([e for e in self._entries if not self._is_mine(e, replaces)] + entries)
        return range(self.shelf.newest + 1, self.shelf.newest + 1 + len(facts))

    def erase(self, fact_id: str | None) -> None:
        keep = [
            e for e in self._entries if not (self._is_mine(e, fact_id) or (fact_id is None and e.user == self._user))
        ]
        self._rewrite(keep)

    def _is_mine(self, entry: _Entry, fact_id: str | None) -> bool:
        return entry.user == self._user and entry.fact.id == fact_id

    def _rewrite(self, entries: list[_Entry]) -> None:
        text = f"{_FIRST}{self._embedder}\n".encode() + b"".join(map(_format, entries))
        replace_file(self._path, text)
        self._vectors.keep({_key(entry.fact.text) for entry in entries})
        self._entries, self._whole, self._state = entries, True, _state(self._path)


class _VectorFile:
    """Vectors by the content of their text: the dimensions as four bytes, then key and vector of one text each.

    It can be lost at any time; whoever writes to it holds the lock of the text file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[bytes, Vector]:
        data = self._path.read_bytes() if self._path.exists() else b""
        length = self._record(data)
        starts = range(4, len(data) - length + 1, length) if length else range(0)
        return {data[at : at + _KEY]: unpack(data[at + _KEY : at + length]) for at in starts}

    def append(self, vectors: Mapping[bytes, Vector]) -> None:
        dimensions = next(iter(vectors.values())).size
        head = dimensions.to_bytes(4, "little")
        with self._path.open("a+b") as file:
            size = file.tell()
            file.seek(0)
            length = _KEY + 4 * dimensions
            if file.read(4) != head:
                file.truncate(0)
                file.write(head)
            elif (size - 4) % length:
                file.truncate(size - (size - 4) % length)
            file.write(b"".join(key + pack(vector) for key, vector in vectors.items()))

    def keep(self, keys: set[bytes]) -> None:
        """Forget the vectors of all other texts."""
        kept = {key: vector for key, vector in self.read().items() if key in keys}
        records = [key + pack(vector) for key, vector in kept.items()]
        dimensions = next(iter(kept.values())).size if kept else 0
        replace_file(self._path, dimensions.to_bytes(4, "little") + b"".join(records))

    @staticmethod
    def _record(data: bytes) -> int:
        """Bytes of one record, 0 for a file without any."""
        dimensions = int.from_bytes(data[:4], "little")
        return _KEY + 4 * dimensions if dimensions else 0


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _format(entry: _Entry) -> bytes:
    fact_id, user = (json.dumps(name) for name in (entry.fact.id, entry.user))
    lines = [f"> {line}" if line else ">" for line in _escape(entry.fact.text).split("\n")]
    head = f"[fact {fact_id} of {user} at {entry.fact.created.isoformat()}]"
    return "\n".join(["", head, *lines, _END, ""]).encode()


def _escape(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return "\\\\" if found[0] == "\\" else rf"\x{code:02x}" if code < 256 else rf"\u{code:04x}"

    return _UNPRINTABLE.sub(escape, text)


def _unescape(line: str) -> str:
    return _ESCAPED.sub(lambda m: "\\" if m[3] else chr(int(m[1] or m[2], 16)), line)


def _parse(data: bytes, embedder: str) -> tuple[list[_Entry], bool]:
    """The entries of a file, and whether it ends as it should; an entry that was cut off at the end is left out."""
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    _check_first_line(lines[0], embedder)
    last = max((number for number, line in enumerate(lines) if line == _END.encode()), default=0)
    entries: list[_Entry] = []
    seen: set[tuple[str, str]] = set()
    head: tuple[str, str, datetime] | None = None
    text: list[str] = []
    for number, raw in enumerate(lines[1 : last + 1], start=2):
        try:
            line = raw.decode()
            if head is None:
                if line:
                    head, text = _parse_head(line, seen), []
            elif line == _END:
                fact_id, user, created = head
                seen.add((user, fact_id))
                entries.append(_Entry(user, Fact(id=fact_id, text="\n".join(text), created=created)))
                head = None
            elif line.startswith(">"):
                text.append(_unescape(line[1:].removeprefix(" ")))
            else:
                raise _Damaged("a line of a fact begins with '> '")
        except (ValueError, _Damaged) as error:
            raise _Damaged(f"line {number}: {error}") from error
    rest = b"\n".join(lines[last + 1 :]).strip()
    if rest and not (rest.startswith(_START) or _START.startswith(rest)):
        raise _Damaged(f"line {last + 2}: what follows is no fact")
    return entries, not rest and data.endswith(b"\n")


def _parse_head(line: str, seen: set[tuple[str, str]]) -> tuple[str, str, datetime]:
    found = _HEAD.fullmatch(line)
    if found is None:
        raise _Damaged('expected [fact "ID" of "USER" at TIME]')
    fact_id, user = json.loads(found[1]), json.loads(found[2])
    if (user, fact_id) in seen:
        raise _Damaged(f"the id {fact_id!r} is there twice")
    return fact_id, user, datetime.fromisoformat(found[3])


def _check_first_line(line: bytes, embedder: str) -> None:
    first = line.decode(errors="replace")
    if not first.startswith(_FIRST):
        raise _Damaged(f"line 1: expected '{_FIRST}...'")
    if first.removeprefix(_FIRST) != embedder:
        holds = first.removeprefix(_FIRST)
        raise _Damaged(f"holds vectors of {holds}, not of {embedder}: use the same embedder or another folder")


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _append(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
