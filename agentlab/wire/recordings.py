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

from agentlab.core import codec, secrets
from agentlab.core.errors import ConfigError, RecordingError
from agentlab.core.files import LARGE, append_whole, cut_unfinished_line, open_file, replace_file
from agentlab.core.messages import Request, from_json
from agentlab.core.strict_json import parse_json
from agentlab.wire.entries import KINDS, PARTS, Completed, entry_of
from agentlab.wire.keys import Row, digest

FORMAT = 1


class _Line(NamedTuple):
    """A line as it stands in a file, held against its own hash. It is decoded when it is asked for: parsed and kept, a
    hundred thousand of them take ten seconds and are a million objects for the garbage collector to walk over."""

    text: bytes
    where: str
    kind: str

    def row(self) -> Row:
        try:
            row: Row = codec.loads(self.text)
            return row
        except ValueError as problem:
            # Its check fits, so somebody made that anew.
            raise RecordingError(f"{problem}; was it edited by hand?", self.where) from None

    def entry(self) -> Any:
        return entry_of(self.row(), self.where)


class Recordings:
    """What a spec recorded, in memory, by key, with what others recorded that it names; additions go to its own file.

    The own file wins over the others, of which the first that is named counts; two answers to one request within a file
    are an error.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._own = folder / f"{name}.jsonl"
        self._writing = False
        self._mine: dict[str, _Line] = {}
        """By key or id."""
        self._others: dict[str, _Line] = {}
        self._read_to = (0, 0)
        """Bytes and lines of the own file that were read."""
        self._lock = _lock(self._own)

    @classmethod
    def open(cls, folder: Path, name: str, also: Sequence[str] = (), *, write: bool = False) -> Recordings:
        """Read what the spec called `name` recorded in `folder`, and those called `also`, as far as they are there.

        Raises ConfigError where nothing can be read or written, RecordingError for a damaged line.
        """
        recordings = cls(folder, name)
        recordings._writing = write
        others = [file for file in (folder / f"{other}.jsonl" for other in also) if file.exists()]
        if write:
            recordings._prepare()
        elif recordings._own.exists():
            _read(recordings._own, (0, 0), recordings._mine)
        elif not others:
            raise ConfigError(f"there are no recordings in {recordings._own}; make them with --mode record")
        for file in others:
            lines: dict[str, _Line] = {}
            _read(file, (0, 0), lines)
            recordings._others = lines | recordings._others
        return recordings

    def __len__(self) -> int:
        return sum(line.kind not in PARTS for line in self._lines().values())

    def _lines(self) -> dict[str, _Line]:
        return self._others | self._mine

    def find(self, key: str) -> Any:
        """The entry (see `entries`) of a key; None where nothing is recorded."""
        line = self._mine.get(key) or self._others.get(key)
        return None if line is None else line.entry()

    def completions(self) -> Iterator[Completed]:
        return (line.entry() for line in self._lines().values() if line.kind == "completion")

    def request_of(self, entry: Completed) -> Request:
        """The request of a completion, whole again; raises RecordingError where a part of it is not there."""
        where = self.line_of(entry.key)
        fields = {k: v for k, v in entry.request.items() if k not in ("model", "endpoint", "epoch")}
        fields |= {plural: [self._part(kind, i, where) for i in fields[plural]] for kind, plural in PARTS.items()}
        try:
            return from_json(Request, fields)
        except ValueError as problem:
            raise RecordingError(f"not a request: {problem}", where) from None

    def _part(self, kind: str, name: str, where: str) -> Any:
        line = self._mine.get(name) or self._others.get(name)
        if line is None or line.kind not in PARTS:
            raise RecordingError(f"message or tool {name} is not recorded", where)
        content = line.row().get(kind)
        if digest(content) != name:
            raise RecordingError(f"the content of {name} does not fit the id", line.where)
        return content

    def line_of(self, key: str) -> str:
        """`file:line` of a row."""
        return (self._mine.get(key) or self._others[key]).where

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Any:
        """Write `row` under `key` and return the entry that is recorded there: another process's, if that was first.

        Raises RecordingError where it cannot be written, or holds a secret; the file is then as it was.
        """
        assert self._writing, "these recordings were opened for reading"
        try:
            with self._lock:
                self._catch_up()
                if key not in self._mine:
                    fresh = [part for name, part in (parts or {}).items() if name not in self._mine]
                    text = "".join(_seal(line) for line in [*fresh, {"kind": row["kind"], "key": key, **row}])
                    _refuse_secrets(text)
                    append_whole(self._own, text.encode("ascii"))
                    self._read_to = _take(self._own, text.encode("ascii"), self._read_to, self._mine)
        except OSError as problem:
            raise RecordingError(f"cannot be written: {problem.strerror or problem}", str(self._own)) from None
        return self._mine[key].entry()

    def _prepare(self) -> None:
        """Make the file if it is not there, and cut off a last line that a killed run left unfinished."""
        try:
            self._own.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                if self._own.exists() or self._own.is_symlink():
                    cut_unfinished_line(self._own)
                self._catch_up()
        except OSError as problem:
            raise ConfigError(f"cannot write recordings to {self._own}: {problem.strerror}") from None
        except ValueError as problem:
            raise ConfigError(f"cannot write recordings to {self._own}: it holds {problem}") from None

    def _catch_up(self) -> None:
        """Read what was appended to the own file since it was last looked at, by whomever."""
        size = self._own.stat().st_size if self._own.exists() else 0
        if not size:
            replace_file(self._own, _header())
        if size < self._read_to[0]:
            # Somebody began it anew.
            self._mine, self._read_to = {}, (0, 0)
        if size != self._read_to[0] or not size:
            self._read_to = _read(self._own, self._read_to, self._mine)


def _read(file: Path, start: tuple[int, int], lines: dict[str, _Line]) -> tuple[int, int]:
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
    return _take(file, content, start, lines)


def _take(file: Path, content: bytes, start: tuple[int, int], lines: dict[str, _Line]) -> tuple[int, int]:
    """Take lines that follow on so many bytes and lines of `file`; returns how far they go."""
    number = start[1]
    for text in io.BytesIO(content):
        number += 1
        where = f"{file}:{number}"
        if number == 1:
            _check_header(_checked(text, where), where)
            continue
        head = _HEAD.match(text)
        if head is None or not _is_as_sealed(text):
            text = _sealed_anew(text, where)
            head = _HEAD.match(text)
        kind, name = (group.decode() for group in head.groups()) if head else ("", "")
        if kind not in KINDS:
            raise RecordingError(f"not an entry that format {FORMAT} knows", where)
        line = _Line(text, where, kind)
        before = lines.setdefault(name, line)
        if before.text != text and _answer(before.row()) != _answer(line.row()):
            raise RecordingError(f"another answer to the same request is at {before.where}", where)
    return start[0] + len(content), number


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
