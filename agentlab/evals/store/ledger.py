"""`calls.jsonl`, the ledger: one event per line, with its flow, conversation, epoch and attempt (`take`).

    {"flow": "tools", "conversation": "c0", "epoch": 0, "take": 0, "kind": "message", "hash": "5f…", "value": {…}}
    {"flow": "tools", "conversation": "c0", "epoch": 0, "take": 0, "kind": "model_call", …,
     "request": {"messages": ["5f…"], "temperature": 0}}

A request repeats most of the previous one. So each message and each tool is written once per conversation, before the
first request that uses it. A request names them by the hash of their content.

A reader first indexes the lines of each conversation without decoding events. It decodes a trace on access.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlab.core.errors import RunError
from agentlab.core.events import Event, ModelCall, from_row, to_row
from agentlab.core.files import ReadOnlyFile, iter_lines
from agentlab.core.messages import Message, Request, ToolSpec, from_json, to_json
from agentlab.core.strict_json import load_json, parse_json
from agentlab.core.trace import Trace
from agentlab.evals.store.rows import TrialKey, encode_line
from agentlab.wire.keys import settings_of

TrialAttempt = tuple[TrialKey, int]
_Row = TypeVar("_Row")
PARTS = ("messages", "tools")
_PARTS: dict[str, type[Any]] = {"message": Message, "tool_spec": ToolSpec}
"""Types of the parts that most requests of a conversation share."""


class LedgerEncoder:
    """Encodes the events of one attempt as lines, in the order to write them."""

    def __init__(self, trace: Trace) -> None:
        trial = {name: getattr(trace, name) for name in ("flow", "conversation", "epoch")}
        self._head = {**trial, "take": trace.attempt}
        self._hashes: dict[int, tuple[Any, str]] = {}
        """Parts of requests and their hashes, by `id`; keeping the part keeps its `id` unique."""
        self._written: set[str] = set()

    def of(self, event: Event) -> list[bytes]:
        """Return the line of the event, after the lines of new parts that its request uses."""
        lines: list[bytes] = []

        def encode_part(value: Any) -> Any:
            if not isinstance(value, Request):
                return to_json(value)
            row: dict[str, Any] = {"messages": self._named("message", value.messages, lines)}
            if value.tools:
                row["tools"] = self._named("tool_spec", value.tools, lines)
            return row | settings_of(value)

        line = encode_line(self._head | to_row(event, encode_part if isinstance(event, ModelCall) else to_json))
        return [*lines, line]

    def _named(self, kind: str, parts: Sequence[Any], lines: list[bytes]) -> list[str]:
        # Most parts of a request were in the last one, so their hashes are cached.
        hashes = self._hashes
        return [hashed[1] if (hashed := hashes.get(id(part))) else self._hash(kind, part, lines) for part in parts]

    def _hash(self, kind: str, part: Any, lines: list[bytes]) -> str:
        value = to_json(part)
        digest = hashlib.blake2b(f'["{kind}", {json.dumps(value)}]'.encode(), digest_size=16).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            lines.append(encode_line(self._head | {"kind": kind, "hash": digest, "value": value}))
        self._hashes[id(part)] = part, digest
        return digest


class _AttemptFields(Struct):
    """Fields that identify the attempt of a line."""

    flow: str
    conversation: str
    epoch: int
    take: int


def iter_rows(file: ReadOnlyFile, kind: type[_Row]) -> Iterator[_Row]:
    """Yield the lines of a file as `kind`, without an unfinished last line.

    Raises RunError, with file and line, for any other line that cannot be read.
    """
    return (row for _, row in _rows_with_offsets(file, kind))


def _rows_with_offsets(file: ReadOnlyFile, kind: type[_Row]) -> Iterator[tuple[int, _Row]]:
    """Yield each row with the byte offset of its line."""
    decode = msgspec.json.Decoder(kind).decode
    offset = 0
    try:
        for number, line in enumerate(iter_lines(file.at()), 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = decode(line)
            except (ValueError, RecursionError):
                try:  # msgspec refuses what a model may write, such as half a surrogate pair
                    row = from_json(kind, parse_json(line))
                except ValueError as problem:
                    raise RunError(f"{file.path}:{number}: {type(problem).__name__}: {problem}") from None
            yield offset, row
            offset += len(line)
    except (OSError, ValueError) as problem:
        raise RunError(f"{file.path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


class LineIndex:
    """Byte offsets of the lines of each attempt, over several files."""

    def __init__(self, files: Sequence[ReadOnlyFile]) -> None:
        self.files = files
        self._offsets: defaultdict[TrialAttempt, array[int]] = defaultdict(lambda: array("q"))
        """File number in the upper 16 bits, byte offset of the line in the lower 48."""
        self.last_attempts: dict[TrialKey, int] = {}
        """Last attempt of each trial."""
        for number, file in enumerate(files):
            for offset, row in _rows_with_offsets(file, _AttemptFields):
                trial = row.flow, row.conversation, row.epoch
                self._offsets[trial, row.take].append(number << 48 | offset)
                self.last_attempts[trial] = max(row.take, self.last_attempts.get(trial, 0))

    def __iter__(self) -> Iterator[TrialAttempt]:
        return iter(self._offsets)

    def read(self, attempt: TrialAttempt) -> Iterator[dict[str, Any]]:
        """Yield the rows of an attempt, in the order of the files; raises RunError if one cannot be read."""
        for packed in self._offsets.get(attempt, ()):
            file, offset = self.files[packed >> 48], packed & (1 << 48) - 1
            try:
                yield load_json(file.at(offset).readline())
            except ValueError as problem:
                raise RunError(f"{file.path}: at byte {offset}: {problem}") from None


class Ledger(Mapping[TrialKey, Trace]):
    """Last attempt of every trial that has events; a trace is decoded on access."""

    def __init__(self, files: Sequence[ReadOnlyFile]) -> None:
        self._lines = LineIndex(files)
        self.last_attempts: Mapping[TrialKey, int] = self._lines.last_attempts
        self._last: tuple[TrialKey, Trace] | None = None

    def __getitem__(self, trial: TrialKey) -> Trace:
        if self._last is None or self._last[0] != trial:
            self._last = trial, self._decode((trial, self.last_attempts[trial]))
        return self._last[1]

    def __iter__(self) -> Iterator[TrialKey]:
        return iter(self.last_attempts)

    def __len__(self) -> int:
        return len(self.last_attempts)

    def __contains__(self, trial: object) -> bool:
        return trial in self.last_attempts

    def abandoned(self, last_attempts: Mapping[TrialKey, int]) -> Iterator[Trace]:
        """Yield the attempts that a later one in `last_attempts` replaced: only the billed sums count them."""
        return (self._decode((trial, attempt)) for trial, attempt in self._lines if attempt < last_attempts[trial])

    def _decode(self, attempt: TrialAttempt) -> Trace:
        trace = Trace(*attempt[0], attempt=attempt[1])
        parts: dict[str, Any] = {}
        for row in self._lines.read(attempt):
            try:
                if row["kind"] in _PARTS:
                    parts[row["hash"]] = from_json(_PARTS[row["kind"]], row["value"])
                    continue
                if (request := row.get("request")) is not None:
                    request |= {name: [parts[part] for part in request[name]] for name in PARTS if name in request}
                trace.events.append(from_row(row))
            except (KeyError, ValueError, TypeError) as problem:
                location = f"{'/'.join(map(str, attempt[0]))} in {self._lines.files[0].path}"
                raise RunError(f"{location}: {type(problem).__name__}: {problem}") from None
        return trace
