"""Types of the entries of a recording; each line is validated against them before it is replayed.

A checksum alone is not enough, because anyone can compute a new one.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from agentlab.core import errors
from agentlab.core.errors import RecordingError
from agentlab.core.messages import Completion, Message, ToolSpec, from_json
from agentlab.core.strict_json import parse_json
from agentlab.core.vectors import pack, unpack
from agentlab.wire.keys import Row

Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class MessagePart(Struct, tag_field="kind", tag="message"):
    id: str
    content: Message = msgspec.field(name="message")


class ToolPart(Struct, tag_field="kind", tag="tool"):
    id: str
    content: ToolSpec = msgspec.field(name="tool")


class Parts(Struct):
    """Messages and tools of a request, by hash; its settings are further keys beside them."""

    messages: list[str]
    tools: list[str]


class Refusal(Struct):
    error: Literal["BadRequest", "ContentFiltered", "ContextOverflow"]
    text: str
    model: str


class Completed(Struct, tag_field="kind", tag="completion"):
    key: str
    request: dict[str, Any]
    repeat: int | list[int]
    seconds: Seconds
    completion: Completion | None = None
    refusal: Refusal | None = None
    at: tuple[str, str, int] | None = None

    def __post_init__(self) -> None:
        from_json(Parts, self.request)
        if (self.completion is None) == (self.refusal is None):
            raise ValueError("it has either a `completion` or a `refusal`")

    def to_completion(self) -> Completion:
        """Return the completion, or raise the recorded refusal."""
        if self.refusal is not None:
            raise getattr(errors, self.refusal.error)(self.refusal.text, self.refusal.model)
        assert self.completion is not None
        return self.completion


class Vector(Struct, tag_field="kind", tag="vector"):
    key: str
    model: str
    text: str
    vector: bytes
    endpoint: str = ""

    def __post_init__(self) -> None:
        if not self.vector or len(self.vector) % 2 or not np.isfinite(np.frombuffer(self.vector, dtype="<f2")).all():
            raise ValueError("`vector` is not base64 of float16 numbers")

    def array(self) -> np.ndarray:
        return unpack(np.frombuffer(self.vector, dtype="<f2"))


class Embedding(Vector, kw_only=True, tag="embedding"):
    seconds: Seconds


class Duration(Struct, tag_field="kind", tag="duration"):
    key: str
    work: Any
    seconds: Seconds


class Result(Struct, tag_field="kind", tag="result"):
    key: str
    of: str
    facts: Any
    value: Any
    seconds: Seconds
    error: str | None = None


Entry = MessagePart | ToolPart | Completed | Vector | Embedding | Duration | Result
PARTS = {"message", "tool"}
KINDS = {*PARTS, "completion", "vector", "embedding", "duration", "result"}
_decode = msgspec.json.Decoder(Entry).decode


def decode(line: bytes, location: str) -> Any:
    """Return the entry of a line; raises RecordingError if it is not a valid entry of format 1."""
    try:
        return _decode(line)
    except (ValueError, RecursionError):  # msgspec also rejects half a surrogate pair and a long number
        return entry_of(line, location)


def entry_of(row: Row | bytes, location: str = "") -> Any:
    """Return the entry of a row; raises RecordingError if it is not a valid entry of format 1."""
    try:
        return from_json(Entry, parse_json(row) if isinstance(row, bytes) else row)  # type: ignore[arg-type]
    except ValueError as problem:
        raise RecordingError(f"not an entry that format 1 knows: {problem}", location) from None


def encode_vector(vector: np.ndarray) -> str:
    """Return a vector in its stored form: base64 of little-endian float16."""
    return base64.b64encode(pack(vector).tobytes()).decode("ascii")
