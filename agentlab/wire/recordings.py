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
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlab.core import secrets
from agentlab.core.errors import ConfigError, RecordingError
from agentlab.core.files import append_whole, cut_unfinished_line, lines_of, open_file, replace_file
from agentlab.core.messages import Request, from_json
from agentlab.core.strict_json import parse_json
from agentlab.wire.entries import check_entry
from agentlab.wire.keys import Row, digest, duration_key, result_key, text_key

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
                other.read(_lines_of(file, 0, 0)[0])
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
        return None if line is None else _row(line)

    def completions(self) -> Iterator[Row]:
        rows = map(_row, (self._others.rows | self._mine.rows).values())
        return (row for row in rows if row["kind"] == "completion")

    def request_of(self, row: Row) -> Request:
        """The request of a completion row, whole again."""
        known = self._others.parts | self._mine.parts
        fields = {k: v for k, v in row["request"].items() if k not in ("model", "endpoint", "epoch")}
        fields |= {plural: [_row(known[i])[kind] for i in fields[plural]] for kind, plural in _PARTS.items()}
        try:
            return from_json(Request, fields)
        except ValueError as problem:
            raise RecordingError(f"not a request: {problem}", self.line_of(row["key"])) from None

    def line_of(self, key: str) -> str:
        """`file:line` of a row."""
        return self._mine.lines.get(key) or self._others.lines[key]

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Row:
        """Write `row` under `key` and return what is recorded there: the row of another process, if that was first.

        Raises RecordingError where it cannot be written, or holds a secret; the file is then as it was.
        """
        assert self._writing, "these recordings were opened for reading"
        try:
            with _lock(self._own):
                if not self._own.exists():
                    replace_file(self._own, _header())
                self._catch_up()
                if key in self._mine.rows:
                    return _row(self._mine.rows[key])
                fresh = [part for name, part in (parts or {}).items() if name not in self._mine.parts]
                text = "".join(_seal(line) for line in [*fresh, {"kind": row["kind"], "key": key, **row}])
                _refuse_unreadable(text)
                _refuse_secrets(text)
                append_whole(self._own, text.encode("utf-8"))
                self._catch_up()
        except OSError as problem:
            raise RecordingError(f"cannot be written: {problem.strerror or problem}", str(self._own)) from None
        return _row(self._mine.rows[key])

    def keep_only(self, used: Collection[str]) -> int:
        """Rewrite the own file without the rows that are not in `used`; returns how many were dropped."""
        with _lock(self._own):
            rows = [row for _, row, _ in _lines_of(self._own, 0, 0)[0]]
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
        size = self._own.stat().st_size
        if size < self._read_to[0]:
            # Somebody pruned it or began anew.
            self._mine, self._read_to = _File(), (0, 0)
        if size != self._read_to[0]:
            rows, self._read_to = _lines_of(self._own, *self._read_to)
            self._mine.read(rows)


class _File:
    """What one file holds: its lines, checked, by key and by id.

    They are read again when they are asked for. Parsed and kept, a hundred thousand of them are a million objects that
    the garbage collector walks over again and again, and cost a replay more than the second reading.
    """

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.parts: dict[str, bytes] = {}
        self.lines: dict[str, str] = {}
        """Where each row stands, for messages."""
        self.conflicts: dict[str, str] = {}
        """Where other files have another answer to the same request."""

    def read(self, rows: Iterable[tuple[str, Row, bytes]]) -> None:
        for where, row, line in rows:
            if row["kind"] in _PARTS:
                if digest(row[row["kind"]]) != row["id"]:
                    raise RecordingError("the content does not fit the id", where)
                self.parts[row["id"]] = line
                continue
            if row["kind"] == "completion":
                for name in (name for plural in _PARTS.values() for name in row["request"][plural]):
                    if name not in self.parts:
                        raise RecordingError(f"message or tool {name} stands nowhere above", where)
            if row["key"] != _key_of(row):
                raise RecordingError("the key does not fit the request", where)
            before = self.rows.get(row["key"])
            if before is not None and _answer(_row(before)) != _answer(row):
                raise RecordingError(f"another answer to the same request is at {self.lines[row['key']]}", where)
            if before is None:
                self.rows[row["key"]] = line
                self.lines[row["key"]] = where

    def add_missing(self, other: _File) -> None:
        """Add what `other` holds and is not here yet."""
        for key, line in other.rows.items():
            if key in self.rows and _answer(_row(self.rows[key])) != _answer(_row(line)):
                self.conflicts.setdefault(key, other.lines[key])
        self.rows = other.rows | self.rows
        self.parts = other.parts | self.parts
        self.lines = other.lines | self.lines


def _row(line: bytes) -> Row:
    row: Row = json.loads(line)
    del row["check"]
    return row


def _key_of(row: Row) -> str:
    match row["kind"]:
        case "completion":
            return digest([row["request"], row["repeat"]])
        case "embedding" | "vector" as kind:
            return text_key(kind, row["model"], row["text"], row.get("endpoint", ""))
        case "result":
            return result_key(row["of"], row["facts"])
    return duration_key(row["work"])


def _answer(row: Row) -> Any:
    """What must not differ between two recordings of one request; how long they took may."""
    return [row.get(name) for name in ("completion", "refusal", "vector", "value")]


def _header() -> str:
    return _seal({"kind": "recordings", "format": FORMAT})


def _seal(row: Row) -> str:
    content = {name: value for name, value in row.items() if name != "check"}
    # Pure ASCII: half a surrogate pair survives, and no editor or diff shows two texts as one.
    return json.dumps({**content, "check": digest(content)[:12]}) + "\n"


def _lines_of(file: Path, start: int, lines: int) -> tuple[list[tuple[str, Row, bytes]], tuple[int, int]]:
    """The rows after byte `start`, the end of line `lines`, each with its place and its line; and how far that was.

    Each is checked; the header is checked and left out.
    """
    try:
        with open_file(file, links=False) as opened:
            opened.seek(start)
            content = opened.read()
    except OSError as problem:
        raise ConfigError(f"cannot read the recordings {file}: {problem.strerror}") from None
    rows = []
    number = lines
    for line in lines_of(io.BytesIO(content)):
        number += 1
        where = f"{file}:{number}"
        if not line.endswith(b"\n"):
            raise RecordingError("the line is cut off; --mode auto mends it and records what was lost", where)
        row = _checked(line, where)
        if number == 1:
            _check_header(row, where)
            continue
        check_entry(row, where)
        rows.append((where, row, line))
    if number == 0:
        raise RecordingError("the file is empty; delete it", str(file))
    return rows, (start + len(content), number)


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


def _refuse_unreadable(text: str) -> None:
    for line in text.splitlines():
        try:
            parse_json(line)
        except ValueError as problem:
            raise RecordingError(f"the request or its answer cannot be recorded: {problem}") from None


def _refuse_secrets(text: str) -> None:
    if name := secrets.name_in(text):
        raise RecordingError(f"the request or its answer holds the value of {name}; it was not recorded")


def _lock(file: Path) -> Any:
    from filelock import FileLock

    return FileLock(file.with_suffix(".lock"))
