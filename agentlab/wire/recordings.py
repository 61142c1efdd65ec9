"""Recorded calls on disk: JSON lines, found by exactly what reached the provider.

    recordings = Recordings.open(Path("evals/recordings"), "flows", write=True)
    row = recordings.find(key) or recordings.add(key, {"kind": "completion", ...})

A folder holds a `*.jsonl` file a spec; each opens with a header line, and every other line is one of

    message     a message, once a file, by its hash: a request repeats most of the last one
    tool        a tool's definition, likewise
    completion  `request` (messages and tools by hash), then `completion` or the provider's refusal, and `seconds`
    embedding   a query and its vector, base64 of little-endian float16, and `seconds`
    vector      the same for passages and graded texts, whose time is nobody's latency
    duration    how long a search or a tool took that ran in this process; what it found is computed anew
    result      what came from elsewhere, a web search with its pages: `of` what kind, `facts` asked, `value`, `seconds`

`check` ends each line: a hash of the rest, so that a line edited by hand is refused by name and never replayed. JSON
only, so a stranger's file can be loaded. Format 1 is the only one there is; a file of a newer format is refused.

A provider's refusal is recorded so that a replay fails at the same place. Whoever may ask the provider asks again: an
answer that follows a refusal of the same request replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from agentlab.core import secrets
from agentlab.core.errors import ConfigError, RecordingError
from agentlab.core.files import (
    MAX_GENERATED_FILE_BYTES,
    append_atomically,
    open_regular_file,
    truncate_partial_line,
    write_atomically,
)
from agentlab.core.strict_json import parse_json
from agentlab.wire.keys import Row, digest
from agentlab.wire.recording_schema import KINDS, PARTS, Completed, decode

FORMAT = 1
_HEAD = re.compile(rb'\{"kind": "(\w+)", "(?:key|id)": "([0-9a-f]{32})"')
_CHECK = len(', "check": "0123456789ab"}\n')


class Line(NamedTuple):
    """A line that fits its checksum. It is decoded when it is asked for: parsed and kept, a hundred thousand of them
    take ten seconds and are a million objects for the garbage collector to walk over."""

    text: bytes
    where: str
    kind: str

    def entry(self) -> Any:
        return decode(self.text, self.where)

    @property
    def is_refusal(self) -> bool:
        # Quotes inside a text are escaped, so most lines are not decoded for this.
        return b'"refusal": {' in self.text and self.kind == "completion" and self.entry().refusal is not None

    def answer(self) -> Any:
        """Must not differ between two recordings of one request; how long they took may."""
        entry = self.entry()
        return [getattr(entry, name, None) for name in ("completion", "refusal", "vector", "value")]


class RecordingsFile:
    """The lines of one file by key or id, as far as it was read; two answers to one request are an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, Line] = {}
        self._bytes_read = self._lines_read = 0
        self._lock = FileLock(path.with_suffix(".lock"))

    def read(self) -> None:
        """Read on; raises ConfigError where the file cannot be read, RecordingError for a damaged line."""
        content = self._content()
        if not content.endswith(b"\n"):
            # Somebody may be writing at this moment: whoever waits for him finds a whole line.
            with contextlib.suppress(OSError), self._lock:
                content = self._content()
        if not content and not self._bytes_read:
            raise RecordingError("the file is empty; delete it", str(self.path))
        self._take(content)

    def prepare(self) -> None:
        """Make the file if it is not there, and cut off a last line that a killed run left unfinished."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                if self.path.exists() or self.path.is_symlink():
                    truncate_partial_line(self.path)
                self._read_appended()
        except OSError as problem:
            raise ConfigError(f"cannot write recordings to {self.path}: {problem.strerror}") from None
        except ValueError as problem:
            raise ConfigError(f"cannot write recordings to {self.path}: it holds {problem}") from None

    def drop_refusals(self) -> None:
        """Forget recorded refusals, so that those requests are asked again."""
        self.lines = {name: line for name, line in self.lines.items() if not line.is_refusal}

    def add(self, key: str, row: Row, parts: Mapping[str, Row]) -> None:
        """Write `row` under `key` with those of its parts that are new, unless another process was answered first.

        Raises RecordingError where it cannot be written, or holds a secret; the file is then as it was.
        """
        try:
            with self._lock:
                self._read_appended()
                if key in self.lines and not self.lines[key].is_refusal:
                    return
                new = [part for name, part in parts.items() if name not in self.lines]
                text = "".join(_with_checksum(line) for line in [*new, {"kind": row["kind"], "key": key, **row}])
                if name := secrets.find_secret(text):
                    raise RecordingError(f"the request or its answer holds the value of {name}; it was not recorded")
                append_atomically(self.path, text.encode("ascii"))
                self._take(text.encode("ascii"))
        except OSError as problem:
            raise RecordingError(f"cannot be written: {problem.strerror or problem}", str(self.path)) from None

    def _read_appended(self) -> None:
        """Read what others appended since the last look; the lock is ours."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if not size:
            write_atomically(self.path, _with_checksum({"kind": "recordings", "format": FORMAT}))
        if size < self._bytes_read:
            # Somebody began it anew.
            self.lines.clear()
            self._bytes_read = self._lines_read = 0
        if size != self._bytes_read or not size:
            self.read()

    def _content(self) -> bytes:
        try:
            with open_regular_file(self.path, MAX_GENERATED_FILE_BYTES, follow_links=False) as opened:
                opened.seek(self._bytes_read)
                return opened.read()
        except OSError as problem:
            raise ConfigError(f"cannot read the recordings {self.path}: {problem.strerror}") from None

    def _take(self, content: bytes) -> None:
        """Take the lines that follow on those that were read."""
        number = self._lines_read
        for text in io.BytesIO(content):
            number += 1
            where = f"{self.path}:{number}"
            if number == 1:
                _check_header(_checked(text, where), where)
                continue
            head = _HEAD.match(text)
            if head is None or not _has_valid_checksum(text):
                text = _normalised_line(text, where)
                head = _HEAD.match(text)
            kind, name = (group.decode() for group in head.groups()) if head else ("", "")
            if kind not in KINDS:
                raise RecordingError(f"not an entry that format {FORMAT} knows", where)
            line = Line(text, where, kind)
            before = self.lines.get(name)
            if before is None or before.is_refusal:
                self.lines[name] = line
            elif before.text != text and before.answer() != line.answer():
                raise RecordingError(f"another answer to the same request is at {before.where}", where)
        self._bytes_read += len(content)
        self._lines_read = number


class Recordings:
    """The recordings of a spec and of others that it names, in memory; additions go to its own file.

    The own file, which comes first, wins over the others, of which the first that is named counts.
    """

    def __init__(self, files: Sequence[RecordingsFile]) -> None:
        self._files = files

    @classmethod
    def open(cls, folder: Path, name: str, also: Sequence[str] = (), *, write: bool = False) -> Recordings:
        """Read what the spec called `name` recorded in `folder`, and those called `also`, as far as they are there.

        Raises ConfigError where nothing can be read or written, RecordingError for a damaged line.
        """
        own, *named = (RecordingsFile(folder / f"{spec}.jsonl") for spec in (name, *also))
        others = [file for file in named if file.path.exists()]
        if write:
            own.prepare()
        elif own.path.exists():
            own.read()
        elif not others:
            raise ConfigError(f"there are no recordings in {own.path}; make them with --mode record")
        for file in others:
            file.read()
        if write:
            for file in (own, *others):
                file.drop_refusals()
        return cls([own, *others])

    def __len__(self) -> int:
        return sum(line.kind not in PARTS for line in self._lines().values())

    def _lines(self) -> dict[str, Line]:
        return {name: line for file in reversed(self._files) for name, line in file.lines.items()}

    def _line(self, name: str) -> Line | None:
        for file in self._files:
            if name in file.lines:
                return file.lines[name]
        return None

    def find(self, key: str) -> Any:
        """The entry (see `recording_schema`) of a key; None where nothing is recorded."""
        line = self._line(key)
        return None if line is None else line.entry()

    def completions(self) -> Iterator[Completed]:
        return (line.entry() for line in self._lines().values() if line.kind == "completion")

    def part(self, kind: str, name: str, where: str) -> Any:
        """The message or the tool that a request recorded at `where` names; raises RecordingError without it."""
        line = self._line(name)
        if line is None or line.kind != kind:
            raise RecordingError(f"message or tool {name} is not recorded", where)
        return line.entry().content

    def line_of(self, key: str) -> str:
        """`file:line` of a row."""
        line = self._line(key)
        return line.where if line is not None else ""

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Any:
        """Write `row` under `key` and return the entry that is recorded there: another process's, if that was first.

        Raises RecordingError where it cannot be written, or holds a secret; the file is then as it was.
        """
        self._files[0].add(key, row, parts or {})
        return self._files[0].lines[key].entry()


def _with_checksum(row: Row) -> str:
    # Pure ASCII: half a surrogate pair survives, and no editor or diff shows two texts as one.
    return json.dumps({**row, "check": digest(row)[:12]}) + "\n"


def _has_valid_checksum(line: bytes) -> bool:
    """Compare to the byte with what `_with_checksum` writes; a line in another form may still mean the same."""
    found = hashlib.sha256(line[:-_CHECK])
    found.update(b"}")
    return line[-_CHECK:] == b', "check": "%b"}\n' % found.hexdigest()[:12].encode()


def _normalised_line(line: bytes, where: str) -> bytes:
    """A line that means what was recorded, in the form of `_with_checksum`; raises RecordingError for any other."""
    if not line.endswith(b"\n"):
        raise RecordingError("the line is cut off; --mode auto mends it and records what was lost", where)
    return _with_checksum(_checked(line, where)).encode()


def _checked(line: bytes, where: str) -> Row:
    try:
        row = parse_json(line)
    except ValueError as problem:
        why = "not JSON" if isinstance(problem, json.JSONDecodeError) else problem
        raise RecordingError(f"{why}; was it edited or merged by hand?", where) from None
    if not isinstance(row, dict) or "kind" not in row:
        raise RecordingError("not an entry of a recording", where)
    given = row.pop("check", None)
    if given != digest(row)[:12]:
        named = row.get("key") or row.get("id") or row["kind"]
        raise RecordingError(f"entry {named} was changed after it was recorded; delete the line and record anew", where)
    return row


def _check_header(row: Row, where: str) -> None:
    if row.get("kind") != "recordings":
        raise RecordingError("the first line is not the header of a recording", where)
    if row.get("format") != FORMAT:
        raise RecordingError(f"this is recording format {row.get('format')}, agentlab reads format {FORMAT}", where)
