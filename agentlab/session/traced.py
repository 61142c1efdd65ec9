"""Base of a session: its trace, clock, gateway and settings (`Has`), and its simplest verbs.

A fork continues a conversation with the `Has` of another session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from agentlab.core.constants import NOT_RECORDED
from agentlab.core.events import Decision, EmbeddingCall, Event, Fetch, Notice, Phase, Step
from agentlab.core.messages import Usage
from agentlab.core.protocols import CallResult, Gateway, Index, Memory, Tool
from agentlab.core.stream import Stream, ToolProgress, UserQuestion
from agentlab.core.trace import Trace
from agentlab.session.clock import Clock

T = TypeVar("T")


class Generation(Struct, frozen=True, kw_only=True):
    """Sampling settings of every completion of a session."""

    temperature: float | None = 0.0
    seed: int | None = 7
    max_tokens: int | None = 256
    thought_tokens: int | None = None
    cut_off_arguments: str | None = None
    """Error for truncated arguments of a native call: invalid JSON if `unreadable`, cut off if None."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Limits of a conversation; None: no limit."""

    turn: float | None = None
    """Wall-clock seconds of a turn; the turn driver enforces it."""
    conversation: float | None = None
    """Wall-clock seconds of all turns together."""
    tokens: int | None = None
    """Tokens of a request, estimated as four bytes of text each; longer requests are rejected."""


class Files(Struct, frozen=True, kw_only=True):
    """Folders of a conversation."""

    workspace: Path | None = None
    """Initial content of the file tools' folder; None: empty."""
    edits_in_place: bool = False
    """True if the file tools work in `workspace` itself; else in a copy that is deleted with the session."""
    folder: Path | None = None
    """Folder in which a flow stores files for later conversations; None in a comparison, which stores none."""


class Has(Struct, frozen=True, kw_only=True):
    """Settings and parts that decide how a session answers."""

    settings: Any = None
    """Settings of the flow."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    generation: Generation = Generation()
    tools: dict[str, Tool] = field(default_factory=dict)
    has_dataset_tools: bool = False
    """True if the tools come from the data set; a flow's allow-list does not apply to those."""
    index: Index | None = None
    top_k: int = 4
    memory: Memory | None = None
    memory_min_score: float | None = None
    """Minimum cosine similarity of a recalled fact; None: no minimum."""
    files: Files = Files()
    bounds: Bounds = Bounds()
    price: Callable[[str, Usage], float | None] = lambda model, usage: None


class Traced:
    """Conversation with its simplest verbs; each appends one event to the trace."""

    def __init__(
        self, *, trace: Trace, gateway: Gateway, now: datetime, has: Has | None = None, stream: Stream | None = None
    ) -> None:
        self.trace = trace
        self.stream = stream or Stream()
        self.has = has or Has()
        self.now = now
        self.speaker = ""
        """Name of the speaker of this turn; "" if unknown."""
        self._gateway = gateway
        self.model_name = gateway.name
        self._clock = Clock(trace, self.stream, gateway.recorded_duration)

    @property
    def settings(self) -> Any:
        return self.has.settings

    @property
    def tools(self) -> dict[str, Tool]:
        return self.has.tools

    @property
    def index(self) -> Index | None:
        return self.has.index

    @property
    def memory(self) -> Memory | None:
        return self.has.memory

    @property
    def current_time(self) -> datetime:
        """Start of the turn plus its modelled seconds so far; a replay has the same times."""
        return self.now + timedelta(seconds=self._clock.elapsed)

    def change(self, **parts: Any) -> None:
        """Replace `parts` of `has`, such as tools or prompts."""
        self.has = replace(self.has, **parts)

    def switch_to(self, other: Traced) -> None:
        """Answer like `other`, a session of the same conversation, from now on; history and counts stay."""
        self.has, self.model_name = other.has, other.model_name
        self._gateway.switch_to(other._gateway)

    def step(self, name: str, text: str = "") -> contextlib.AbstractContextManager[object]:
        """Group the events of the block under a named step."""
        return self._clock.timed(Step, None, name=name, text=text)

    def decide(self, name: str, choice: bool | str, why: str = "") -> bool | str:
        """Record a decision of the flow and return its choice."""
        with self._clock.timed(Decision, None, name=name, choice=choice, why=why):
            return choice

    def notify(self, name: str, text: str = "", **data: Any) -> None:
        """Send a notice to the trace, the log and the listeners; the reply must not depend on it."""
        with self._clock.timed(Notice, None, name=name, text=text, data=data):
            pass

    def report(self, tool: str, text: str) -> None:
        """Report the progress of a tool; it is displayed and not stored."""
        self.stream.emit(ToolProgress(self._clock.scope.turn, tool, text))

    async def ask_user(self, text: str) -> str | None:
        """Return what the user of a chat types as the answer to a tool's question; None without an answer."""
        question = UserQuestion(self._clock.scope.turn, text, Future())
        if not self.stream.has_listener(question.name):
            return None
        self.stream.emit(question)
        return await asyncio.wrap_future(question.answer)

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the JSON that `ask` fetches from outside, recorded by `kind` and `facts`; for tools.

        Raises the errors of `ask`. A ToolError, which means that the source did not respond, is also recorded.
        """
        opened = self._clock.open("tool")
        return self._record_call(await self._gateway.fetch(kind, facts, ask), Fetch, opened, source=kind, facts=facts)

    async def _embed(self, text: str, phase: Phase, model: str) -> Any:
        opened = self._clock.open(phase)
        return self._record_call(await self._gateway.embed(text), EmbeddingCall, opened, model=model)

    def _record_call(self, result: CallResult[T], kind: type[Event], opened: dict[str, Any], **facts: Any) -> T:
        """Append one call as one event, notify a recording miss, and raise the error of the call."""
        measured = ("seconds", "waited", "attempt", "origin", "error")
        self._clock.close(kind(**opened, **facts, **{name: getattr(result, name) for name in measured}))
        if result.miss is not None:
            self.notify(NOT_RECORDED, str(result.miss), cause=result.miss.cause)
        if result.failure is not None:
            raise result.failure
        return cast("T", result.value)
