"""Plain frozen values that travel through agentlab: messages, requests, completions, passages, replies.

They hold no behaviour beyond conversion to and from JSON, know no provider and import nothing of ours.
The model's own role is `agent`; each adapter translates it to its provider's word.

    Message(role="agent", tool_calls=(ToolCall(id="c1", name="lookup_documents", arguments={"query": "offside"}),))
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeGuard, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

T = TypeVar("T")
Role = Literal["system", "user", "agent", "tool"]
ROLES: tuple[str, ...] = get_args(Role)
CHARACTERS_PER_TOKEN = 4
"""Of English, roughly: where no tokenizer is at hand."""
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "interrupted"]


PLAIN = frozenset({type(None), bool, int, float, str})
"""Types whose values are JSON as they are."""


def to_json(value: Any) -> Any:
    """Turn nested values into what `json.dumps` accepts; fields at their default are left out."""
    cls: Any = type(value)
    if cls in PLAIN:
        return value
    if issubclass(cls, Struct):
        row = {}
        for name, default in field_defaults(cls):
            inner = getattr(value, name)
            if inner is not default and inner != default:
                row[name] = inner if type(inner) in PLAIN else to_json(inner)
        return row
    if isinstance(value, (list, tuple)):
        return [inner if type(inner) in PLAIN else to_json(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value


def from_json(kind: type[T], record: Mapping[str, Any]) -> T:
    """The way back from `to_json`; raises ValueError, with the place, for what is no `kind`."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None


@functools.cache
def field_defaults(cls: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a type in order, each with its default; a field without one has NODEFAULT."""
    found = fields(cls)
    return tuple((f.name, f.default if f.default_factory is NODEFAULT else f.default_factory()) for f in found)


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call the model asks for."""

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    malformed: str | None = None
    """The arguments as the model wrote them, where they were not a JSON object."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Opaque provider data that has to be sent back with the call."""


class Message(Struct, frozen=True, kw_only=True):
    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a `tool` message: the call it answers."""
    name: str | None = None
    """On a `tool` message: the tool that ran. On a `user` message: the speaker."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


def is_text_only(value: Any) -> TypeGuard[Message]:
    """Whether it is a message of words alone: no calls, no answer to one, nothing opaque."""
    return isinstance(value, Message) and value.tool_call_id is None and not (value.tool_calls or value.extra)


def as_messages(given: Any) -> tuple[Message, ...]:
    """A text as one user message, messages as they are; TypeError, with what is taken, for anything else."""
    if isinstance(given, str):
        return (Message(role="user", text=given),)
    messages = tuple(given) if isinstance(given, Iterable) and not isinstance(given, Mapping) else (given,)
    for message in messages:
        if not isinstance(message, Message) or message.role not in ROLES or not isinstance(message.text, str):
            roles = ", ".join(ROLES)
            raise TypeError(
                f"complete takes a text or a list of al.Message(role=..., text=...), the role one of {roles};"
                f" not {message!r:.80}"
            )
    return messages


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts as the provider reported them; None means not reported.

    `input_tokens` includes `cached_tokens`; `output_tokens` includes `reasoning_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class ToolSpec(Struct, frozen=True, kw_only=True):
    """What a model is told of a tool; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Struct, frozen=True, kw_only=True):
    """Exactly what a model is asked: nothing that reaches the provider is kept elsewhere."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool that must be called."""
    output_schema: dict[str, Any] | None = None
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None


class Completion(Struct, frozen=True, kw_only=True):
    message: Message
    usage: Usage = Usage()
    model: str = ""
    """The model that answered, in the provider's own words."""
    finish_reason: FinishReason = "stop"

    @property
    def text(self) -> str:
        """What the model said."""
        return self.message.text


class Passage(Struct, frozen=True, kw_only=True):
    """A piece of a document: `text` is the document's text from `start` to `end` (characters).

    It prints as its text.
    """

    id: str
    doc_id: str
    title: str
    text: str
    start: int
    end: int
    score: float | None = None
    """Relevance for the query it was retrieved for; higher is better."""

    def __str__(self) -> str:
        return self.text


class Citation(Struct, frozen=True, kw_only=True):
    """A pointer from a reply to the passage that supports it."""

    doc_id: str
    passage_id: str
    title: str
    marker: int = 0
    """The number by which the reply names it, as in `[2]`; 0 where it does not."""


class Fact(Struct, frozen=True, kw_only=True):
    """One thing remembered; facts never change, an update makes a new one."""

    id: str
    text: str
    created: datetime
    score: float | None = None
    """Cosine similarity to what was asked, -1 to 1, to six places; None where nothing was asked."""
    about: str = ""
    """Who told it; "" for whoever the memory belongs to."""


class AddResult(Struct, frozen=True, kw_only=True):
    """What became of a text that was to be remembered."""

    fact: Fact
    """The new fact, or the one that is too near to it, with its score."""
    is_new: bool


class UserTurn(Struct, frozen=True, kw_only=True):
    """What a flow is given of a turn: what the user said, never what is expected of the reply."""

    text: str
    speaker_id: str | None = None
    speaker_name: str | None = None
    session: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """What a flow answers. `text` is graded; `citations` are graded apart and shown below it."""

    text: str
    citations: tuple[Citation, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """Whatever else the flow wants to hand on, JSON values only."""

    @property
    def display_text(self) -> str:
        """What the user reads: the text, with its sources where the flow names them."""
        return str(self.data.get("shown", self.text))
