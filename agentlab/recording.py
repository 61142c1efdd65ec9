"""Recorded calls on disk: JSON lines, found by exactly what reached the provider.

    recordings = Recordings.open(Path("evals/recordings"), write="flows")
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

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentlab.errors import ConfigError, RecordingError
from agentlab.messages import Message, Request, Role, ToolSpec, to_json

FORMAT = 1
VOLATILE = frozenset({"id", "created", "created_at", "timestamp"})
"""Keys of a provider's own data beside a message that name the exchange, not its content."""
_PARTS = {"message": "messages", "tool": "tools"}
_SECRETS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
KNOWN_SECRETS: set[str] = set()
"""Keys that were read from a file; those in the environment are found by the names of their variables."""

Row = dict[str, Any]


def digest(value: Any) -> str:
    """32 hex digits of SHA-256 over `value` as JSON, in the order its keys have: a model reads them in that order."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it is stored: volatile ids normalised, messages and tools taken out and named by their hash."""

    fields: Row
    parts: Mapping[str, Row]
    """`message` and `tool` lines by id."""

    def key(self, repeat: int) -> str:
        """`repeat` counts how often the conversation asked exactly this before: a second try is a call of its own."""
        return digest([self.fields, repeat])


def record_request(model: str, endpoint: str, request: Request, epoch: int) -> RecordedRequest:
    """What decides the answer to `request`; `endpoint` is the kind of server and whatever else the adapter adds."""
    parts: dict[str, Row] = {}

    def intern(kind: str, content: Row) -> str:
        name = digest(content)
        parts[name] = {"kind": kind, "id": name, kind: content}
        return name

    messages = []
    rank: dict[str, str] = {}
    for message in request.messages:
        if message.tool_calls or message.tool_call_id is not None or message.extra:
            messages.append(intern("message", _normalised(message, rank)))
        else:
            name, part = _plain(message.role, message.text, message.name)
            parts[name] = part
            messages.append(name)
    tools = [intern("tool", to_json(tool)) for tool in request.tools]
    rest = to_json(dataclasses.replace(request, messages=(), tools=()))
    del rest["messages"]
    who = {"model": model, "endpoint": endpoint, "epoch": epoch}
    return RecordedRequest({**who, "messages": messages, "tools": tools, **rest}, parts)


@functools.lru_cache(maxsize=4096)
def _plain(role: Role, text: str, name: str | None) -> tuple[str, Row]:
    # Most messages of a request were in the last one too, and hashing them is most of the work of a replay.
    content = to_json(Message(role=role, text=text, name=name))
    identity = digest(content)
    return identity, {"kind": "message", "id": identity, "message": content}


def _normalised(message: Message, rank: dict[str, str]) -> Row:
    """A message as JSON, tool-call ids by their rank of appearance: only who answers whom is left of them."""
    row: Row = to_json(message)
    for call in row.get("tool_calls", ()):
        call["id"] = rank.setdefault(call["id"], f"call {len(rank) + 1}")
        _drop_volatile(call)
    if "tool_call_id" in row:
        row["tool_call_id"] = rank.setdefault(row["tool_call_id"], f"call {len(rank) + 1}")
    _drop_volatile(row)
    return row


def _drop_volatile(row: Row) -> None:
    if "extra" in row:
        row["extra"] = {name: value for name, value in row["extra"].items() if name not in VOLATILE}


class Recordings:
    """What is recorded in a folder, in memory, by key; additions go to the one file that was named for writing."""

    def __init__(self, folder: Path, write: str | None) -> None:
        self.folder = folder
        self._rows: dict[str, Row] = {}
        self._lines: dict[str, str] = {}
        """Where each row stands, for messages."""
        self._parts: dict[str, Row] = {}
        self._own: Path | None = folder / f"{write}.jsonl" if write else None
        self._own_parts: set[str] = set()
        self._read_to = 0

    @classmethod
    def open(cls, folder: Path, *, write: str | None = None, only_own: bool = False) -> Recordings:
        """Read every file of `folder` (with `only_own`, the file that is written alone).

        Raises ConfigError where nothing can be read or written, RecordingError for a damaged line.
        """
        recordings = cls(folder, write)
        own = recordings._own
        if own is not None:
            recordings._prepare(own)
        elif not any(folder.glob("*.jsonl")):
            raise ConfigError(f"there are no recordings in {folder}; make them with --mode record")
        for file in sorted(folder.glob("*.jsonl")):
            if file != own and not only_own:
                recordings._read(file, 0)
        if own is not None:
            recordings._catch_up()
        return recordings

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, key: str) -> Row | None:
        return self._rows.get(key)

    def completions(self) -> Iterator[Row]:
        return (row for row in self._rows.values() if row["kind"] == "completion")

    def request_of(self, row: Row) -> Request:
        """The request of a completion row, whole again."""
        fields = {k: v for k, v in row["request"].items() if k not in ("model", "endpoint", "epoch")}
        fields |= {plural: [self._parts[i][kind] for i in fields[plural]] for kind, plural in _PARTS.items()}
        return Request(
            **{
                **fields,
                "messages": tuple(Message.from_json(m) for m in fields["messages"]),
                "tools": tuple(ToolSpec.from_json(t) for t in fields["tools"]),
            }
        )

    def line_of(self, key: str) -> str:
        """`file:line` of a row."""
        return self._lines[key]

    def add(self, key: str, row: Row, parts: Mapping[str, Row] | None = None) -> Row:
        """Write `row` under `key` and return what is recorded there: the row of another process, if that was first."""
        assert self._own is not None, "these recordings were opened for reading"
        with _lock(self._own):
            self._catch_up()
            if key in self._rows:
                return self._rows[key]
            fresh = [part for name, part in (parts or {}).items() if name not in self._own_parts]
            text = "".join(_seal(line) for line in [*fresh, {"kind": row["kind"], "key": key, **row}])
            _refuse_secrets(text)
            with self._own.open("ab") as file:
                file.write(text.encode("utf-8"))
            self._catch_up()
        return self._rows[key]

    def keep_only(self, used: set[str]) -> int:
        """Rewrite the own file without the rows that are not in `used`; returns how many were dropped."""
        assert self._own is not None, "these recordings were opened for reading"
        with _lock(self._own):
            rows = [row for _, row in _rows_of(self._own)]
            kept = [row for row in rows if row.get("key") in used]
            requests = [row["request"] for row in kept if row["kind"] == "completion"]
            parts = {name for request in requests for plural in _PARTS.values() for name in request[plural]}
            left = [row for row in rows if row.get("key") in used or row.get("id") in parts]
            fresh = self._own.with_suffix(".new")
            fresh.write_text(_header() + "".join(_seal(row) for row in left), encoding="utf-8")
            fresh.replace(self._own)
        return sum("key" in row for row in rows) - len(kept)

    def _prepare(self, own: Path) -> None:
        """Make the file if it is not there, and cut off a last line that a killed run left unfinished."""
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
            with _lock(own):
                content = own.read_bytes() if own.exists() else b""
                whole = content[: content.rfind(b"\n") + 1]
                if not whole:
                    own.write_text(_header(), encoding="utf-8")
                elif whole != content:
                    own.write_bytes(whole)
        except OSError as problem:
            raise ConfigError(f"cannot write recordings to {own}: {problem.strerror}") from None

    def _catch_up(self) -> None:
        """Read what was appended to the own file since it was last looked at, by whomever."""
        assert self._own is not None
        size = self._own.stat().st_size
        if size != self._read_to:
            self._read(self._own, self._read_to if size > self._read_to else 0)

    def _read(self, file: Path, start: int) -> None:
        own = file == self._own
        parts: set[str] = self._own_parts if own else set()
        for where, row in _rows_of(file, start):
            if row["kind"] in _PARTS:
                if digest(row[row["kind"]]) != row["id"]:
                    raise RecordingError("the content does not fit the id", where)
                self._parts[row["id"]] = row
                parts.add(row["id"])
                continue
            if row["kind"] == "completion":
                missing = {n for plural in _PARTS.values() for n in row["request"][plural]} - parts
                if missing:
                    raise RecordingError(f"message or tool {sorted(missing)[0]} stands nowhere above", where)
            if row["key"] != _key_of(row):
                raise RecordingError("the key does not fit the request", where)
            before = self._rows.get(row["key"])
            if before is not None and _answer(before) != _answer(row):
                raise RecordingError(f"another answer to the same request is at {self._lines[row['key']]}", where)
            if before is None:
                self._rows[row["key"]] = row
                self._lines[row["key"]] = where
        if own:
            self._read_to = file.stat().st_size


def _key_of(row: Row) -> str:
    match row["kind"]:
        case "completion":
            return digest([row["request"], row["repeat"]])
        case "embedding":
            return embedding_key(row["model"], row["text"])
        case "vector":
            return vector_key(row["model"], row["text"])
        case "result":
            return result_key(row["of"], row["facts"])
    return duration_key(row["work"])


def embedding_key(model: str, text: str) -> str:
    return digest(["embedding", model, text])


def vector_key(model: str, text: str) -> str:
    return digest(["vector", model, text])


def duration_key(work: Any) -> str:
    """`work` is JSON that says what was done and what came of it."""
    return digest(["duration", work])


def result_key(of: str, facts: Any) -> str:
    """`of` is the kind of thing that was fetched, `facts` is JSON that says what was asked for."""
    return digest(["result", of, facts])


def _answer(row: Row) -> Any:
    """What must not differ between two recordings of one request; how long they took may."""
    return [row.get(name) for name in ("completion", "refusal", "vector", "value")]


def _header() -> str:
    return _seal({"kind": "recordings", "format": FORMAT})


def _seal(row: Row) -> str:
    content = {name: value for name, value in row.items() if name != "check"}
    # Pure ASCII: half a surrogate pair survives, and no editor or diff shows two texts as one.
    return json.dumps({**content, "check": digest(content)[:12]}) + "\n"


_KINDS = {
    "message": {"id", "message"},
    "tool": {"id", "tool"},
    "completion": {"key", "request", "repeat", "seconds"},
    "embedding": {"key", "model", "text", "vector", "seconds"},
    "vector": {"key", "model", "text", "vector"},
    "duration": {"key", "work", "seconds"},
    "result": {"key", "of", "facts", "value", "seconds"},
}


def _rows_of(file: Path, start: int = 0) -> Iterator[tuple[str, Row]]:
    """The lines from byte `start` on with their place, each checked; the header is checked and left out."""
    number = 0
    try:
        with file.open("rb") as lines:
            if start:
                number = lines.read(start).count(b"\n")
            for line in lines:
                number += 1
                where = f"{file}:{number}"
                if not line.endswith(b"\n"):
                    raise RecordingError(
                        "the line is cut off; --mode auto mends the file and records what is lost", where
                    )
                row = _checked(line, where)
                if number == 1:
                    _check_header(row, where)
                    continue
                if row["kind"] not in _KINDS or not _KINDS[row["kind"]] <= set(row):
                    raise RecordingError(f"not an entry that format {FORMAT} knows", where)
                yield where, row
    except OSError as problem:
        raise ConfigError(f"cannot read the recordings {file}: {problem.strerror}") from None
    if number == 0:
        raise RecordingError("the file is empty; delete it", str(file))


def _checked(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordingError("not JSON; was it edited or merged by hand?", where) from None
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
    secrets = {value: name for name, value in os.environ.items() if name.endswith(_SECRETS)}
    secrets |= dict.fromkeys(KNOWN_SECRETS, "a key from the key file")
    for value, name in secrets.items():
        if len(value) >= 8 and json.dumps(value)[1:-1] in text:
            raise RecordingError(f"the request or its answer holds the value of {name}; it was not recorded")


def _lock(file: Path) -> Any:
    from filelock import FileLock

    return FileLock(file.with_suffix(".lock"))
