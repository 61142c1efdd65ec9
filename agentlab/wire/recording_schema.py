"""The entries of a recording as types: what anybody may have sealed anew is held against them before it is replayed."""

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
    """The messages and tools of a request, by their hash; its settings are beside them."""

    messages: list[str]
    tools: list[str]


class Refusal(Struct):
    error: Literal["BadRequest", "ContextOverflow"]
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

    def answer(self) -> Completion:
        """The completion; raises the refusal that was recorded in its place."""
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


def decode(line: bytes, where: str) -> Any:
    """The entry of a line; raises RecordingError unless it is one of format 1, with the types that it has there."""
    try:
        return _decode(line)
    except (ValueError, RecursionError):  # over half a surrogate pair or a long number, too
        return entry_of(line, where)


def entry_of(row: Row | bytes, where: str = "") -> Any:
    try:
        return from_json(Entry, parse_json(row) if isinstance(row, bytes) else row)  # type: ignore[arg-type]
    except ValueError as problem:
        raise RecordingError(f"not an entry that format 1 knows: {problem}", where) from None


def encode_vector(vector: np.ndarray) -> str:
    """A vector as recordings keep it: base64 of little-endian float16."""
    return base64.b64encode(pack(vector).tobytes()).decode("ascii")
