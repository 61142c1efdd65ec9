"""Recorded calls on disk, as JSON lines with a key of exactly what reached the provider.

    recordings = Recordings.open(Path("evals/recordings"), "flows", write=True)
    row = recordings.look_up(key) or recordings.add(key, {"kind": "completion", ...})

A folder contains one `*.jsonl` file per spec. The first line is a header; every other line is one of

    message     a message by its hash, once a file, because requests repeat most messages
    tool        a tool definition by its hash, once a file
    completion  `request` (messages and tools by hash), then `completion` or the provider's refusal, and `seconds`
    embedding   a query and its vector, base64 of little-endian float16, and `seconds`
    vector      the same for passages and graded texts, without `seconds`: they are not part of a latency
    duration    `seconds` of a search or tool that ran in this process; a replay computes its result again
    result      data from outside, such as a web search: `of` its kind, `facts` its request, `value`, `seconds`

Each line ends with `check`, a checksum of the rest: an edited line is an error and is never replayed. The files are
plain JSON, so an untrusted file is safe to load. Format 1 is the only format; a newer one is an error.

A provider's refusal is recorded, so that a replay fails at the same call. Modes that may call the provider call it
again, and a later completion replaces the refusal.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from agentlab.core import secrets
from agentlab.core.constants import COMPATIBLE
from agentlab.core.errors import ConfigError, RecordingError, os_errors_as
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
_CHECKSUM_BYTES = len(', "check": "0123456789ab"}\n')


class Line(NamedTuple):
    """Line with a valid checksum, decoded at each use.

    A hundred thousand decoded lines would take ten seconds and be a million objects for the garbage collector.
    """

    text: bytes
    location: str
    kind: str

    def entry(self) -> Any:
        return decode(self.text, self.location)

    @property
    def is_refusal(self) -> bool:
        # Quotes inside a text are escaped, so this rarely has to decode a line.
        return b'"refusal": {' in self.text and self.kind == "completion" and self.entry().refusal is not None

    def content(self) -> Any:
        """Return the content that must be equal in two recordings of one request; their seconds may differ."""
        entry = self.entry()
        return [getattr(entry, name, None) for name in ("completion", "refusal", "vector", "value")]


class RecordingsFile:
    """Lines of one file that were read so far, by key or id; two results of one request are an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, Line] = {}
        self._bytes_read = self._lines_read = 0
        self._lock = FileLock(path.with_suffix(".lock"))

    def read(self) -> None:
        """Read the lines added since the last read.

        Raises ConfigError if the file cannot be read, RecordingError for a damaged line.
        """
        content = self._content()
        if not content.endswith(b"\n"):
            # Another process may be writing the last line now; its lock is free once the line is complete.
            with contextlib.suppress(OSError), self._lock:
                content = self._content()
        if not content and not self._bytes_read:
            raise RecordingError("the file is empty; delete it", str(self.path))
        self._add_lines(content)

    def prepare(self) -> None:
        """Create the file if it is missing, and remove an incomplete last line of a killed run.

        Raises ConfigError if that fails.
        """
        try:
            with os_errors_as(ConfigError, f"cannot write recordings to {self.path}: "):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self._lock:
                    if self.path.exists() or self.path.is_symlink():
                        truncate_partial_line(self.path)
                    self._read_appended()
        except ValueError as problem:
            raise ConfigError(f"cannot write recordings to {self.path}: it holds {problem}") from None

    def drop_refusals(self) -> None:
        """Drop recorded refusals from memory, so that their requests are made again."""
        for name in [name for name, line in self.lines.items() if line.is_refusal]:
            del self.lines[name]

    def add(self, key: str, row: Row, parts: Mapping[str, Row]) -> None:
        """Append `row` under `key` and its new parts, unless another process has recorded the key.

        Raises RecordingError if it cannot be written or contains a secret, and then leaves the file unchanged.
        """
        with os_errors_as(partial(RecordingError, location=str(self.path)), "cannot be written: "), self._lock:
            self._read_appended()
            if key in self.lines and not self.lines[key].is_refusal:
                return
            new = [part for name, part in parts.items() if name not in self.lines]
            text = "".join(_with_checksum(line) for line in [*new, {"kind": row["kind"], "key": key, **row}])
            if name := secrets.find_secret(text):
                raise RecordingError(f"the request or its answer holds the value of {name}; it was not recorded")
            append_atomically(self.path, text.encode("ascii"))
            self._add_lines(text.encode("ascii"))

    def _read_appended(self) -> None:
        """Read the lines that other processes appended; the caller holds the lock."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if not size:
            write_atomically(self.path, _with_checksum({"kind": "recordings", "format": FORMAT}))
        if size < self._bytes_read:
            # Another process has replaced the file.
            self.lines.clear()
            self._bytes_read = self._lines_read = 0
        if size != self._bytes_read or not size:
            self.read()

    def _content(self) -> bytes:
        failure = os_errors_as(ConfigError, f"cannot read the recordings {self.path}: ")
        with failure, open_regular_file(self.path, MAX_GENERATED_FILE_BYTES, follow_links=False) as opened:
            opened.seek(self._bytes_read)
            return opened.read()

    def _add_lines(self, content: bytes) -> None:
        """Add the lines of `content`, which follow those read before."""
        number = self._lines_read
        for text in io.BytesIO(content):
            number += 1
            location = f"{self.path}:{number}"
            if number == 1:
                _check_header(_validated(text, location), location)
                continue
            head = _HEAD.match(text)
            if head is None or not _has_valid_checksum(text):
                text = _normalised_line(text, location)
                head = _HEAD.match(text)
            kind, name = (group.decode() for group in head.groups()) if head else ("", "")
            if kind not in KINDS:
                raise RecordingError(f"not an entry that format {FORMAT} knows", location)
            line = Line(text, location, kind)
            before = self.lines.get(name)
            if before is None or before.is_refusal:
                self.lines[name] = line
            elif before.text != text and before.content() != line.content():
                raise RecordingError(f"another answer to the same request is at {before.location}", location)
        self._bytes_read += len(content)
        self._lines_read = number


class Recordings:
    """Recordings of a spec and of the others that it names; new ones go to its own file.

    The first file with a key wins: the spec's own file, then the others in their order.
    """

    def __init__(self, files: Sequence[RecordingsFile]) -> None:
        self._own = files[0]
        self._lines = ChainMap(*(file.lines for file in files))

    @classmethod
    def open(cls, folder: Path, name: str, also: Sequence[str] = (), *, write: bool = False) -> Recordings:
        """Read the recordings of the spec `name` in `folder`, and the existing ones of the specs in `also`.

        `write` prepares the spec's own file for new recordings. Raises ConfigError if a file cannot be read or written
        or if there are no recordings, and RecordingError for a damaged line.
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
        return sum(line.kind not in PARTS for line in self._lines.values())

    def endpoint_of(self, name: str, endpoint: str) -> str:
        """Return the kind of server that all recorded calls of a model or embedder name, else `endpoint`.

        There are two kinds: the model's own provider and a compatible server. Further settings of an endpoint count as
        none.
        """
        kinds = {name.partition("/")[0], COMPATIBLE}
        marks = {kind: f'"model": {json.dumps(name)}, "endpoint": {json.dumps(kind)}'.encode() for kind in kinds}
        texts = [line.text for line in self._lines.values()] if endpoint in kinds else []
        recorded = [kind for kind, mark in marks.items() if any(mark in text for text in texts)]
        return recorded[0] if len(recorded) == 1 else endpoint

    def look_up(self, key: str) -> Any:
        """Return the entry of a key (see `recording_schema`); None if there is none."""
        line = self._lines.get(key)
        return None if line is None else line.entry()

    def completions(self) -> Iterator[Completed]:
        return (line.entry() for line in self._lines.values() if line.kind == "completion")

    def part(self, kind: str, name: str, location: str) -> Any:
        """Return the message or tool that a request recorded at `location` names; raises RecordingError without it."""
        line = self._lines.get(name)
        if line is None or line.kind != kind:
            raise RecordingError(f"message or tool {name} is not recorded", location)
        return line.entry().content

    def line_of(self, key: str) -> str:
        """Return `file:line` of an entry; "" if there is none."""
        line = self._lines.get(key)
        return line.location if line is not None else ""

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Any:
        """Record `row` under `key` and return its entry, or the entry that another process recorded first.

        Raises RecordingError if it cannot be written or contains a secret, and then leaves the file unchanged.
        """
        self._own.add(key, row, parts or {})
        return self._own.lines[key].entry()


def _with_checksum(row: Row) -> str:
    # Pure ASCII preserves half a surrogate pair, and different texts never look the same in an editor or diff.
    return json.dumps({**row, "check": digest(row)[:12]}) + "\n"


def _has_valid_checksum(line: bytes) -> bool:
    """Return True if the line is byte-equal to the form of `_with_checksum`; another form may also be valid."""
    expected = hashlib.sha256(line[:-_CHECKSUM_BYTES])
    expected.update(b"}")
    return line[-_CHECKSUM_BYTES:] == b', "check": "%b"}\n' % expected.hexdigest()[:12].encode()


def _normalised_line(line: bytes, location: str) -> bytes:
    """Return a valid line in the form of `_with_checksum`; raises RecordingError for a damaged one."""
    if not line.endswith(b"\n"):
        raise RecordingError("the line is incomplete; --mode auto removes it and records the call again", location)
    return _with_checksum(_validated(line, location)).encode()


def _validated(line: bytes, location: str) -> Row:
    try:
        row = parse_json(line)
    except ValueError as problem:
        why = "not JSON" if isinstance(problem, json.JSONDecodeError) else problem
        raise RecordingError(f"{why}; was it edited or merged by hand?", location) from None
    if not isinstance(row, dict) or "kind" not in row:
        raise RecordingError("not an entry of a recording", location)
    given = row.pop("check", None)
    if given != digest(row)[:12]:
        named = row.get("key") or row.get("id") or row["kind"]
        raise RecordingError(f"entry {named} was changed after it was recorded; delete it and record again", location)
    return row


def _check_header(row: Row, location: str) -> None:
    if row.get("kind") != "recordings":
        raise RecordingError("the first line is not the header of a recording", location)
    if row.get("format") != FORMAT:
        raise RecordingError(f"this is recording format {row.get('format')}, agentlab reads format {FORMAT}", location)
