"""`calls.jsonl`, the ledger: an event a line, with the flow, conversation, epoch and take it belongs to.

    {"flow": "tools", "conversation": "c0", "epoch": 0, "take": 0, "kind": "message", "hash": "5f…", "value": {…}}
    {"flow": "tools", "conversation": "c0", "epoch": 0, "take": 0, "kind": "model_call", …,
     "request": {"messages": ["5f…"], "temperature": 0}}

What a model is asked repeats most of what it was asked before, so each message and tool is written once a conversation,
before the first request that names it by the hash of its content.

Reading begins with where the lines of each conversation stand, which decodes no event; a trace is decoded when it is
asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlab.core.errors import RunError
from agentlab.core.events import Decision, Event, ModelCall, Step, from_row, to_row
from agentlab.core.files import HeldFile, iter_lines
from agentlab.core.messages import Message, Request, ToolSpec, from_json, to_json
from agentlab.core.strict_json import load_json, parse_json
from agentlab.core.trace import Trace
from agentlab.evals.store.rows import TrialKey, encode_line
from agentlab.wire.keys import settings_of

TrialAttempt = tuple[TrialKey, int]
_Row = TypeVar("_Row")
_encode = msgspec.json.Encoder().encode
PARTS = ("messages", "tools")
_PARTS: dict[str, type[Any]] = {"message": Message, "tool_spec": ToolSpec}
"""Of a request, what most requests of a conversation share."""


class LedgerEncoder:
    """The rows of one take, in the order in which they are to be written."""

    def __init__(self, trace: Trace) -> None:
        self._where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "take": trace.take}
        self._head = encode_line(self._where)[:-2] + b","
        self._known: dict[int, tuple[Any, str]] = {}
        """Parts of requests and their hashes by identity; a part is kept, so that no other takes its place."""
        self._written: set[str] = set()

    def of(self, event: Event) -> list[bytes]:
        """The line of the event, after those of what its request names and was not written yet."""
        if isinstance(event, (Step, Decision)):
            # Most events, and nothing in them is written in another way than msgspec writes it.
            with contextlib.suppress(ValueError):  # half a surrogate pair, which a model may write
                return [self._head + _encode(event)[1:] + b"\n"]
        lines: list[bytes] = []

        def told(value: Any) -> Any:
            if not isinstance(value, Request):
                return to_json(value)
            row: dict[str, Any] = {"messages": self._named("message", value.messages, lines)}
            if value.tools:
                row["tools"] = self._named("tool_spec", value.tools, lines)
            return row | settings_of(value)

        line = encode_line(self._where | to_row(event, told if isinstance(event, ModelCall) else to_json))
        return [*lines, line]

    def _named(self, kind: str, parts: Sequence[Any], lines: list[bytes]) -> list[str]:
        # Most parts of a request were in the last one.
        known = self._known
        return [found[1] if (found := known.get(id(part))) else self._hash(kind, part, lines) for part in parts]

    def _hash(self, kind: str, part: Any, lines: list[bytes]) -> str:
        value = to_json(part)
        digest = hashlib.blake2b(f'["{kind}", {json.dumps(value)}]'.encode(), digest_size=16).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            lines.append(encode_line(self._where | {"kind": kind, "hash": digest, "value": value}))
        self._known[id(part)] = part, digest
        return digest


class _Place(Struct):
    """What says to which take of a conversation a line belongs."""

    flow: str
    conversation: str
    epoch: int
    take: int


def iter_rows(file: HeldFile, kind: type[_Row]) -> Iterator[_Row]:
    """The lines of a file as `kind`.

    An unfinished last line is left out; raises RunError, naming file and line, for any other that is broken.
    """
    return (row for _, row in _placed_rows(file, kind))


def _placed_rows(file: HeldFile, kind: type[_Row]) -> Iterator[tuple[int, _Row]]:
    """Each with the place in the file at which its line begins, in bytes."""
    decode = msgspec.json.Decoder(kind).decode
    place = 0
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
            yield place, row
            place += len(line)
    except (OSError, ValueError) as problem:
        raise RunError(f"{file.path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


class LineIndex:
    """Where the lines of each take stand in files of one shape."""

    def __init__(self, files: Sequence[HeldFile]) -> None:
        self.files = files
        self._places: defaultdict[TrialAttempt, array[int]] = defaultdict(lambda: array("q"))
        """A file's number in the upper 16 bits, and the byte at which the line begins."""
        self.takes: dict[TrialKey, int] = {}
        """The last of each conversation."""
        for number, file in enumerate(files):
            for place, row in _placed_rows(file, _Place):
                play = row.flow, row.conversation, row.epoch
                self._places[play, row.take].append(number << 48 | place)
                self.takes[play] = max(row.take, self.takes.get(play, 0))

    def __iter__(self) -> Iterator[TrialAttempt]:
        return iter(self._places)

    def read(self, take: TrialAttempt) -> Iterator[dict[str, Any]]:
        """The rows of a take, in the order of the files; raises RunError where one cannot be read."""
        for packed in self._places.get(take, ()):
            file, place = self.files[packed >> 48], packed & (1 << 48) - 1
            try:
                yield load_json(file.at(place).readline())
            except ValueError as problem:
                raise RunError(f"{file.path}: at byte {place}: {problem}") from None


class Ledger(Mapping[TrialKey, Trace]):
    """The last take of every conversation that left an event behind; a trace is decoded when it is asked for."""

    def __init__(self, files: Sequence[HeldFile]) -> None:
        self._lines = LineIndex(files)
        self.takes: Mapping[TrialKey, int] = self._lines.takes
        self._last: tuple[TrialKey, Trace] | None = None

    def __getitem__(self, play: TrialKey) -> Trace:
        if self._last is None or self._last[0] != play:
            self._last = play, self._decode((play, self.takes[play]))
        return self._last[1]

    def __iter__(self) -> Iterator[TrialKey]:
        return iter(self.takes)

    def __len__(self) -> int:
        return len(self.takes)

    def __contains__(self, play: object) -> bool:
        return play in self.takes

    def abandoned(self, takes: Mapping[TrialKey, int]) -> Iterator[Trace]:
        """Takes that a later one replaced, here or among `takes`: nothing counts them but the bill."""
        return (self._decode((play, take)) for play, take in self._lines if take < takes[play])

    def _decode(self, take: TrialAttempt) -> Trace:
        trace = Trace(*take[0], take=take[1])
        parts: dict[str, Any] = {}
        for row in self._lines.read(take):
            try:
                if row["kind"] in _PARTS:
                    parts[row["hash"]] = from_json(_PARTS[row["kind"]], row["value"])
                    continue
                if (request := row.get("request")) is not None:
                    request |= {name: [parts[part] for part in request[name]] for name in PARTS if name in request}
                trace.events.append(from_row(row))
            except (KeyError, ValueError, TypeError) as problem:
                where = f"{'/'.join(map(str, take[0]))} in {self._lines.files[0].path}"
                raise RunError(f"{where}: {type(problem).__name__}: {problem}") from None
        return trace
