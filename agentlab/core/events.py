"""Typed events of a trace, and their JSON rows (the format of the ledger).

A session's verb appends one event, with child events for its parts:

    step        load_conversation
    step        retrieve_context
      embedding                         phase retrieve
      search                            phase retrieve
    model_call                          phase answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from agentlab.core.messages import PLAIN, Completion, Fact, Passage, Request, ToolCall, from_json, to_json

Phase = Literal[
    "rewrite",
    "retrieve",
    "select_tool",
    "tool_args",
    "tool",
    "answer",
    "fallback",
    "memory_read",
    "memory_write",
    "plan",
    "step",
    "evaluate",
    "reflect",
    "summarize",
    "relevance",
    "consolidate",
    "judge",
]
PHASES: tuple[str, ...] = get_args(Phase)
ANSWERING = ("answer", "fallback")
"""Phases of the calls that write a reply."""
_STOPS = {"length": "length", "content_filter": "content filter", "other": "server"}


class Event(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events.

    `seconds` is the time of the accepted attempt alone. For an event with parts, it is the longest path through them.
    `start` is on the same clock: seconds of work that had to end before, since the trace began.
    """

    is_billable: ClassVar[bool] = False
    """True for events that are counted and paid for; such an event must have a phase."""

    id: int
    turn: int
    phase: str | None = None
    parent: int | None = None
    after: tuple[int, ...] = ()
    start: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0
    """Seconds in queues, back-off and failed attempts; never part of a latency."""
    attempt: int = 1
    origin: str = "live"
    """`live`, or `replay` if the numbers come from a recording or from an equal call that was in flight."""
    background: bool = False
    """True for work that the reply does not wait for; never part of a latency."""
    error: str | None = None

    def __post_init__(self) -> None:
        if self.is_billable and self.phase not in PHASES:
            raise ValueError(f"{self.kind} event with phase {self.phase!r}; known phases: {', '.join(PHASES)}")

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def duration_identity(self) -> Any:
        """Work done in this process and its result, as JSON; None for an event without such work."""
        return None

    @property
    def title(self) -> str:
        """Name of the event when a trace is printed as steps."""
        match self:
            case ModelCall():
                tools = ", ".join(tool.name for tool in self.request.tools)
                return f"complete ({self.phase}; {f'tools: {tools}' if tools else 'no tools'})"
            case EmbeddingCall():
                return "embed"
            case ToolRun():
                return f"call_tool {self.call.name}"
            case Fetch():
                return self.source
            case MemoryOp():
                return self.op
            case Decision(choice=choice):
                return f"{self.name}? {choice if isinstance(choice, str) else 'yes' if choice else 'no'}"
            case Notice():
                return f"notify {self.name}"
            case Step():
                return self.name
        return self.kind

    @property
    def detail(self) -> str:
        """Result of the event in one line."""
        match self:
            case ModelCall(completion=Completion(message=message, usage=usage)):
                calls = ", ".join(call.name for call in message.tool_calls)
                text = f'"{shorten(message.text)}"' if message.text.strip() or not calls else ""
                parts = [message.name and f"{message.name}:", text, calls and f"calls {calls}"]
                content = " ".join(filter(None, parts))
                return f"{content} [{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out]"
            case Search():
                return f"{len(self.passages)} passages: {', '.join(p.id for p in self.passages)}"
            case ToolRun(error=None):
                return shorten(self.output)
            case Fetch():
                return shorten(str(self.facts))
            case MemoryOp(op="recall"):
                return f"{len(self.facts)} fact{'' if len(self.facts) == 1 else 's'}"
            case MemoryOp():
                return f"written as {self.facts[0].id}" if self.written else "not written"
            case Decision():
                return self.why
            case Notice() | Step():
                return self.text
        return ""


class ModelCall(Event, frozen=True, kw_only=True, tag="model_call"):
    is_billable = True

    model: str
    request: Request
    completion: Completion | None = None
    """None if no attempt was accepted; then `error` is the reason and the call is not counted."""
    cost_usd: float | None = None

    @property
    def stop(self) -> str:
        """Cause of a text that is not whole: `length`, `content filter` or `server`; "" for a whole text."""
        if self.completion is None:
            return "content filter" if (self.error or "").startswith("ContentFiltered:") else ""
        return _STOPS.get(self.completion.finish_reason, "")

    @property
    def truncation(self) -> str:
        """Number of tokens at which the limit ended the call, in words; "" if the model ended it."""
        completion = self.completion
        if completion is None or completion.finish_reason != "length":
            return ""
        is_mute = completion.thought and not completion.text
        tokens = completion.usage.output_tokens or self.request.max_tokens or 0
        return f"cut at {tokens} tokens{', while it thought' if is_mute else ''}"


class EmbeddingCall(Event, frozen=True, kw_only=True, tag="embedding"):
    is_billable = True

    model: str
    texts: int = 1


class Search(Event, frozen=True, kw_only=True, tag="search"):
    is_billable = True

    query: str
    doc_ids: tuple[str, ...] | None = None
    passages: tuple[Passage, ...] = ()
    index: str = ""
    """Search method and the name of the index."""

    @property
    def duration_identity(self) -> Any:
        return ["search", self.index, self.query, self.doc_ids, [passage.id for passage in self.passages]]


class ToolRun(Event, frozen=True, kw_only=True, tag="tool"):
    is_billable = True

    call: ToolCall
    output: str = ""

    @property
    def duration_identity(self) -> Any:
        return ["tool", self.call.name, self.call.malformed or self.call.arguments, self.output]


class Fetch(Event, frozen=True, kw_only=True, tag="fetch"):
    """Data that a tool fetches from outside the process; a replay has the recorded seconds."""

    is_billable = True

    source: str
    """Kind of source, such as `web search`."""
    facts: Any = None
    """Request to the source, as JSON."""


class MemoryOp(Event, frozen=True, kw_only=True, tag="memory"):
    is_billable = True

    op: str
    """`recall`, `remember` or `revise`."""
    text: str
    facts: tuple[Fact, ...] = ()
    """Facts found, the fact written, or the existing fact that is too similar to write another."""
    written: bool = False
    replaces: str | None = None
    """On `revise`: the id of the fact to replace."""
    backend: str = ""

    @property
    def duration_identity(self) -> Any:
        ids = [fact.id for fact in self.facts]
        return ["memory", self.backend, self.op, self.text, self.replaces, self.written, ids]


class Decision(Event, frozen=True, kw_only=True, tag="decision"):
    name: str
    choice: bool | str
    why: str = ""


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    name: str
    text: str = ""
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """Named part of a flow that groups the events inside it; it costs nothing itself."""

    name: str
    text: str = ""


_EVENT: Any = ModelCall | EmbeddingCall | Search | ToolRun | Fetch | MemoryOp | Decision | Notice | Step


def to_row(event: Event, encode_value: Callable[[Any], Any] = to_json) -> dict[str, Any]:
    """Return an event as one JSON record, each value encoded by `encode_value`; `from_row` reverses it."""
    values = asdict(event).items()
    return {"kind": event.kind} | {
        name: value if type(value) in PLAIN else encode_value(value) for name, value in values
    }


def from_row(row: Mapping[str, Any]) -> Event:
    """Return the event of a row, ignoring unknown keys; raises ValueError if the row is not an event."""
    return cast("Event", from_json(_EVENT, row))


def shorten(text: str, width: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)
