"""Recorded calls on disk: JSON lines, found by exactly what reached the provider.

    recordings = Recordings.open(Path("evals/recordings"), "flows", write=True)
    row = recordings.find(key) or recordings.add(key, {"kind": "completion", ...})

A folder holds any number of `*.jsonl` files; each opens with a header line, and every other line is one of

    message     a message, once a file, by its hash: a request repeats most of the last one
    tool        a tool's definition, likewise
    completion  `request` (messages and tools by hash), then `completion` or the provider's refusal, and `seconds`
    embedding   a query and its vector, base64 of little-endian float16, and `seconds`
    vector      the same for passages and graded texts, whose time is nobody's latency
    duration    how long a search or a tool took that ran in this process; what it found is computed anew
    result      what came from elsewhere, a web search with its pages: `of` what kind, `facts` asked, `value`, `seconds`

`check` ends each line: a hash of the rest, so that a line edited by hand is refused by name and never replayed. JSON
only, so a stranger's file can be loaded. Format 1 is the only one there is; a file of a newer format is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlab.core import codec, secrets
from agentlab.core.errors import ConfigError, RecordingError
from agentlab.core.files import LARGE, append_whole, cut_unfinished_line, open_file, replace_file
from agentlab.core.messages import Request, from_json
from agentlab.core.strict_json import parse_json
from agentlab.wire.entries import KINDS, check_entry
from agentlab.wire.keys import Row, digest

FORMAT = 1
_PARTS = {"message": "messages", "tool": "tools"}


class Recordings:
    """What is recorded in a folder, in memory, by key; additions go to the one file that was named for writing.

    A spec's own file wins over the others, of which the first by name counts; two answers to one request within a file
    are an error, and so are two in other people's files, once somebody asks for them.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._own = folder / f"{name}.jsonl"
        self._writing = False
        self._others = _File()
        self._mine = _File()
        self._read_to = (0, 0)
        """Bytes and lines of the own file that were read."""
        self._lock = _lock(self._own)

    @classmethod
    def open(cls, folder: Path, name: str = "", *, write: bool = False, only_own: bool = False) -> Recordings:
        """Read every file of `folder`, or with `only_own` that of the spec called `name` alone.

        Raises ConfigError where nothing can be read or written, RecordingError for a damaged line.
        """
        recordings = cls(folder, name)
        recordings._writing = write
        if write:
            recordings._prepare()
        elif not any(folder.glob("*.jsonl")):
            raise ConfigError(f"there are no recordings in {folder}; make them with --mode record")
        for file in sorted(folder.glob("*.jsonl")):
            if file == recordings._own:
                with _lock(file) if write else contextlib.nullcontext():
                    recordings._catch_up()
            elif not only_own:
                other = _File()
                other.read(file, (0, 0))
                recordings._others.add_missing(other)
        return recordings

    def __len__(self) -> int:
        return len(self._mine.rows | self._others.rows)

    def find(self, key: str) -> Row | None:
        line = self._mine.rows.get(key)
        if line is None and key in self._others.conflicts:
            raise RecordingError(
                f"another answer to the same request is at {self.line_of(key)}", self._others.conflicts[key]
            )
        line = line or self._others.rows.get(key)
        return None if line is None else self._row(key, line)

    def _row(self, key: str, line: bytes) -> Row:
        row = _row(line)
        check_entry(row, self.line_of(key))
        return row

    def completions(self) -> Iterator[Row]:
        rows = self._others.rows | self._mine.rows
        return (self._row(key, line) for key, line in rows.items() if line.startswith(b'{"kind": "completion"'))

    def request_of(self, row: Row) -> Request:
        """The request of a completion row, whole again; raises RecordingError where a part of it is not there."""
        fields = {k: v for k, v in row["request"].items() if k not in ("model", "endpoint", "epoch")}
        fields |= {plural: [self._part(kind, i, row) for i in fields[plural]] for kind, plural in _PARTS.items()}
        try:
            return from_json(Request, fields)
        except ValueError as problem:
            raise RecordingError(f"not a request: {problem}", self.line_of(row["key"])) from None

    def _part(self, kind: str, name: str, row: Row) -> Any:
        line = self._mine.parts.get(name) or self._others.parts.get(name)
        if line is None:
            raise RecordingError(f"message or tool {name} is not recorded", self.line_of(row["key"]))
        content = _row(line).get(kind)
        if digest(content) != name:
            raise RecordingError(f"the content of {name} does not fit the id", self.line_of(row["key"]))
        return content

    def line_of(self, key: str) -> str:
        """`file:line` of a row."""
        return self._mine.lines.get(key) or self._others.lines[key]

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Row:
        """Write `row` under `key` and return what is recorded there: the row of another process, if that was first.

        Raises RecordingError where it cannot be written, or holds a secret; the file is then as it was.
        """
        assert self._writing, "these recordings were opened for reading"
        try:
            with self._lock:
                self._catch_up()
                if key in self._mine.rows:
                    return _row(self._mine.rows[key])
                fresh = [part for name, part in (parts or {}).items() if name not in self._mine.parts]
                text = "".join(_seal(line) for line in [*fresh, {"kind": row["kind"], "key": key, **row}])
                _refuse_secrets(text)
                append_whole(self._own, text.encode("ascii"))
                self._read_to = self._mine.take(self._own, text.encode("ascii"), self._read_to)
        except OSError as problem:
            raise RecordingError(f"cannot be written: {problem.strerror or problem}", str(self._own)) from None
        return _row(self._mine.rows[key])

    def keep_only(self, used: Collection[str]) -> int:
        """Rewrite the own file without the rows that are not in `used`; returns how many were dropped."""
        with self._lock:
            own = _File()
            own.read(self._own, (0, 0))
            rows = [_row(line) for line in own.all]
            kept = [row for row in rows if row.get("key") in used]
            requests = [row["request"] for row in kept if row["kind"] == "completion"]
            parts = {name for request in requests for plural in _PARTS.values() for name in request[plural]}
            left = [row for row in rows if row.get("key") in used or row.get("id") in parts]
            replace_file(self._own, _header() + "".join(_seal(row) for row in left))
        return sum("key" in row for row in rows) - len(kept)

    def _prepare(self) -> None:
        """Make the file if it is not there, and cut off a last line that a killed run left unfinished."""
        own = self._own
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
            with _lock(own):
                if own.exists() or own.is_symlink():
                    cut_unfinished_line(own)
                if not own.exists() or not own.stat().st_size:
                    replace_file(own, _header())
        except OSError as problem:
            raise ConfigError(f"cannot write recordings to {own}: {problem.strerror}") from None
        except ValueError as problem:
            raise ConfigError(f"cannot write recordings to {own}: it holds {problem}") from None

    def _catch_up(self) -> None:
        """Read what was appended to the own file since it was last looked at, by whomever."""
        try:
            size = self._own.stat().st_size
        except FileNotFoundError:
            self._own.write_text(_header(), encoding="utf-8")
            size = -1
        if size < self._read_to[0]:
            # Somebody pruned it or began anew.
            self._mine, self._read_to = _File(), (0, 0)
        if size != self._read_to[0]:
            self._read_to = self._mine.read(self._own, self._read_to)


class _File:
    """What one file holds: its lines, checked, by key and by id.

    A line is held against its own hash as it stands, and decoded when it is asked for: parsed and kept, a hundred
    thousand of them take ten seconds and are a million objects, over which the garbage collector walks again and again.
    """

    def __init__(self) -> None:
        self.all: list[bytes] = []
        """The lines in their order, without the header."""
        self.rows: dict[str, bytes] = {}
        self.parts: dict[str, bytes] = {}
        self.lines: dict[str, str] = {}
        """Where each row stands, for messages."""
        self.conflicts: dict[str, str] = {}
        """Where other files have another answer to the same request."""

    def read(self, file: Path, start: tuple[int, int]) -> tuple[int, int]:
        """Take what stands after so many bytes and lines, and return how far that was.

        Raises ConfigError where it cannot be read, RecordingError for a damaged line.
        """
        content = _content(file, start[0])
        if not content.endswith(b"\n"):
            # Somebody may be writing at this moment: whoever waits for him finds a whole line.
            with contextlib.suppress(OSError), _lock(file):
                content = _content(file, start[0])
        if not content and start == (0, 0):
            raise RecordingError("the file is empty; delete it", str(file))
        return self.take(file, content, start)

    def take(self, file: Path, content: bytes, start: tuple[int, int]) -> tuple[int, int]:
        """Take lines that follow on so many bytes and lines of `file`; returns how far they go."""
        number = start[1]
        for line in io.BytesIO(content):
            number += 1
            if number == 1:
                _check_header(_checked(line, f"{file}:1"), f"{file}:1")
                continue
            head = _HEAD.match(line)
            if head is None or not _is_as_sealed(line):
                line = _sealed_anew(line, f"{file}:{number}")
                head = _HEAD.match(line)
            kind, name = head.groups() if head else (b"", b"")
            if kind.decode() not in KINDS:
                raise RecordingError(f"not an entry that format {FORMAT} knows", f"{file}:{number}")
            self._keep(kind.decode(), name.decode(), line, f"{file}:{number}")
        return start[0] + len(content), number

    def _keep(self, kind: str, name: str, line: bytes, where: str) -> None:
        self.all.append(line)
        if kind in _PARTS:
            self.parts[name] = line
            return
        before = self.rows.get(name)
        if before is None:
            self.rows[name] = line
            self.lines[name] = where
        elif before != line and _answer(_row(before)) != _answer(_row(line)):
            raise RecordingError(f"another answer to the same request is at {self.lines[name]}", where)

    def add_missing(self, other: _File) -> None:
        """Add what `other` holds and is not here yet."""
        for key, line in other.rows.items():
            if key in self.rows and _answer(_row(self.rows[key])) != _answer(_row(line)):
                self.conflicts.setdefault(key, other.lines[key])
        self.rows = other.rows | self.rows
        self.parts = other.parts | self.parts
        self.lines = other.lines | self.lines


def _row(line: bytes) -> Row:
    try:
        row: Row = codec.loads(line)
    except ValueError as problem:
        # Its check fits, so somebody made that anew.
        told = line[:60].decode("ascii", "backslashreplace")
        raise RecordingError(f"{problem}; was it edited by hand?", f"the entry that begins {told}") from None
    del row["check"]
    return row


def _answer(row: Row) -> Any:
    """What must not differ between two recordings of one request; how long they took may."""
    return [row.get(name) for name in ("completion", "refusal", "vector", "value")]


def _header() -> str:
    return _seal({"kind": "recordings", "format": FORMAT})


def _seal(row: Row) -> str:
    content = {name: value for name, value in row.items() if name != "check"}
    # Pure ASCII: half a surrogate pair survives, and no editor or diff shows two texts as one.
    return json.dumps({**content, "check": digest(content)[:12]}) + "\n"


_HEAD = re.compile(rb'\{"kind": "(\w+)", "(?:key|id)": "([0-9a-f]{32})"')
_CHECK = len(', "check": "0123456789ab"}\n')


def _content(file: Path, start: int) -> bytes:
    try:
        with open_file(file, LARGE, links=False) as opened:
            opened.seek(start)
            return opened.read()
    except OSError as problem:
        raise ConfigError(f"cannot read the recordings {file}: {problem.strerror}") from None


def _is_as_sealed(line: bytes) -> bool:
    """Whether a line is to the byte what `_seal` wrote; it says nothing of lines that others put into another form."""
    found = hashlib.sha256(line[:-_CHECK])
    found.update(b"}")
    return line[-_CHECK:] == b', "check": "%b"}\n' % found.hexdigest()[:12].encode()


def _sealed_anew(line: bytes, where: str) -> bytes:
    """A line that means what was recorded, in the form of `_seal`; raises RecordingError for any other."""
    if not line.endswith(b"\n"):
        raise RecordingError("the line is cut off; --mode auto mends it and records what was lost", where)
    return _seal(_checked(line, where)).encode()


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


def _refuse_secrets(text: str) -> None:
    if name := secrets.name_in(text):
        raise RecordingError(f"the request or its answer holds the value of {name}; it was not recorded")


def _lock(file: Path) -> Any:
    from filelock import FileLock

    return FileLock(file.with_suffix(".lock"))
