"""Plain frozen values: messages, requests, completions, passages, facts, user turns and replies.

They have no behaviour beyond conversion to and from JSON, know no provider and import no other module of agentlab.
The role of the model is `agent`; each provider translates it to its own word.

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
"""Rough average for English, for use without a tokenizer."""
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "interrupted", "other"]


PLAIN = frozenset({type(None), bool, int, float, str})
"""Types whose values need no conversion to JSON."""


def to_json(value: Any) -> Any:
    """Return nested values as plain JSON values; fields with their default are left out."""
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
    """Return the value that `to_json` encoded; raises ValueError, with the location, if it is not a `kind`."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None


@functools.cache
def field_defaults(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a type in order, each with its default or NODEFAULT."""
    return tuple((f.name, f.default if f.default_factory is NODEFAULT else f.default_factory()) for f in fields(cls))


class ToolCall(Struct, frozen=True, kw_only=True):
    """One tool call of a model."""

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    malformed: str | None = None
    """Arguments as the model wrote them, if they are not a JSON object."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Provider data to send back unchanged with the call."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of a conversation: `role` is system, user, agent (the model) or tool."""

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a `tool` message: the call it answers."""
    name: str | None = None
    """On a `tool` message: the tool that ran. On a `user` message: the speaker."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


def is_text_only(value: Any) -> TypeGuard[Message]:
    """Return True for a message with text only: no tool calls, no tool result, no provider data."""
    return isinstance(value, Message) and value.tool_call_id is None and not (value.tool_calls or value.extra)


def as_messages(given: Any) -> tuple[Message, ...]:
    """Return a text as one user message, and messages unchanged; raises TypeError for anything else."""
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
    """Description of a tool for a model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Struct, frozen=True, kw_only=True):
    """One request to a model; it contains everything that reaches the provider."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool that must be called."""
    output_schema: dict[str, Any] | None = None
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    """Maximum number of tokens of the completion."""
    thought_tokens: int | None = None
    """Tokens for the thought of a model, beyond `max_tokens`; None: the default of the provider."""


class Completion(Struct, frozen=True, kw_only=True):
    """One completion of a model: its message, token counts and finish reason."""

    message: Message
    usage: Usage = Usage()
    model: str = ""
    """Model that answered, as the provider names it."""
    finish_reason: FinishReason = "stop"
    thought: str = ""
    """Thought of the model before its reply; only the trace holds it."""
    stopped: str = ""
    """One line with the reason why the reply is not whole; "" if it is whole, or truncated at the token limit."""

    @property
    def text(self) -> str:
        """Text of the model's message."""
        return self.message.text

    @property
    def cut_off(self) -> str:
        """Problem of a completion that reached its token limit; "" for any other."""
        after = "" if self.usage.output_tokens is None else f" after {self.usage.output_tokens} tokens"
        return f"the reply was cut off{after}, before its end" if self.finish_reason == "length" else ""


class Passage(Struct, frozen=True, kw_only=True):
    """Part of a document: `text` is the document's text from `start` to `end` (characters).

    `str()` returns its text.
    """

    id: str
    doc_id: str
    title: str
    text: str
    start: int
    end: int
    score: float | None = None
    """Relevance to the query; higher is better."""

    def __str__(self) -> str:
        return self.text


class Citation(Struct, frozen=True, kw_only=True):
    """Pointer from a reply to the passage that supports it."""

    doc_id: str
    passage_id: str
    title: str
    marker: int = 0
    """Number in the reply, as in `[2]`; 0 if the reply has none."""


class Fact(Struct, frozen=True, kw_only=True):
    """One stored fact of a memory; facts never change, an update makes a new one."""

    id: str
    text: str
    created: datetime
    score: float | None = None
    """Cosine similarity to the query, -1 to 1, rounded to six places; None without a query."""
    about: str = ""
    """Name of the speaker; "" for the owner of the memory."""


class AddResult(Struct, frozen=True, kw_only=True):
    """Result of adding a text to a memory."""

    fact: Fact
    """New fact, or the existing one that is too similar, with its score."""
    is_new: bool
    differs: bool = False
    """True if the existing fact is near but differs in words or speaker, so that the new text may correct it."""


class UserTurn(Struct, frozen=True, kw_only=True):
    """User's message as a flow sees it, without the expectations of the data set."""

    text: str
    speaker_id: str | None = None
    speaker_name: str | None = None
    session: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """Reply of a flow. Scorers grade `text`, and `citations` separately; citations are shown below the text."""

    text: str
    citations: tuple[Citation, ...] = ()
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further JSON values that the flow returns."""

    @property
    def display_text(self) -> str:
        """Text for the user, with its sources if the flow names them."""
        return str(self.data.get("shown", self.text))
