"""The lines of a recording as types: what anybody may have sealed anew is held against them before it is replayed."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from agentlab.core.errors import RecordingError
from agentlab.core.messages import Completion, Message, ToolSpec, from_json
from agentlab.wire.keys import Row

Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class _Message(Struct):
    id: str
    message: Message


class _Tool(Struct):
    id: str
    tool: ToolSpec


class _Request(Struct):
    messages: list[str]
    tools: list[str]


class _Refusal(Struct):
    error: Literal["BadRequest", "ContextOverflow"]
    text: str
    model: str


class _Completion(Struct):
    key: str
    request: _Request
    repeat: int | list[int]
    seconds: Seconds
    completion: Completion | None = None
    refusal: _Refusal | None = None
    at: tuple[str, str, int] | None = None

    def __post_init__(self) -> None:
        if (self.completion is None) == (self.refusal is None):
            raise ValueError("it has either a `completion` or a `refusal`")


class _Vector(Struct):
    key: str
    model: str
    text: str
    vector: str
    endpoint: str = ""

    def __post_init__(self) -> None:
        packed = base64.b64decode(self.vector, validate=True)
        if not packed or len(packed) % 2 or not np.isfinite(np.frombuffer(packed, dtype="<f2")).all():
            raise ValueError("`vector` is not base64 of float16 numbers")


class _Embedding(_Vector, kw_only=True):
    seconds: Seconds


class _Duration(Struct):
    key: str
    work: Any
    seconds: Seconds


class _Result(Struct):
    key: str
    of: str
    facts: Any
    value: Any
    seconds: Seconds
    error: str | None = None


KINDS: dict[str, type[Struct]] = {
    "message": _Message,
    "tool": _Tool,
    "completion": _Completion,
    "embedding": _Embedding,
    "vector": _Vector,
    "duration": _Duration,
    "result": _Result,
}


def check_entry(row: Row, where: str) -> None:
    """Raise RecordingError unless the row is one of format 1, with the types that it has there."""
    kind = KINDS.get(row["kind"]) if isinstance(row["kind"], str) else None
    if kind is None:
        raise RecordingError("not an entry that format 1 knows", where)
    try:
        from_json(kind, row)
    except ValueError as problem:
        raise RecordingError(f"not an entry that format 1 knows: {problem}", where) from None
