"""What all verbs of a session stand on: the trace with its clock, the way out, and what the conversation has.

A session is made of values: `Has` says what it answers with, and a fork takes over those of another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from agentlab.core.constants import NOT_RECORDED
from agentlab.core.events import Decision, EmbeddingCall, Event, Fetch, Notice, Phase, Step
from agentlab.core.messages import Usage
from agentlab.core.protocols import CallResult, Gateway, Index, Memory, Tool
from agentlab.core.stream import Stream, ToolProgress
from agentlab.core.trace import Trace
from agentlab.session.clock import Clock

T = TypeVar("T")


class Generation(Struct, frozen=True, kw_only=True):
    """Sampling settings of every completion of a session."""

    temperature: float | None = 0.0
    seed: int | None = 7
    max_tokens: int | None = 256


class Bounds(Struct, frozen=True, kw_only=True):
    """What a conversation may take; None: as much as it likes."""

    turn: float | None = None
    """Seconds by the clock on the wall; kept by whoever drives the flow."""
    conversation: float | None = None
    """Seconds of all its turns together."""
    tokens: int | None = None
    """Longer requests are rejected, whoever asks; estimated, four bytes of text a token."""


class Files(Struct, frozen=True, kw_only=True):
    """Where a conversation finds and leaves files."""

    workspace: Path | None = None
    """The folder that the file tools begin with; None: an empty one."""
    keeps: bool = False
    """Whether they work in it, or in a copy that goes with the session."""
    folder: Path | None = None
    """Where a flow may keep files for the conversations to come; None where it must not, as in a comparison."""


class Has(Struct, frozen=True, kw_only=True):
    """What a conversation is answered with."""

    settings: Any = None
    """Those of the flow."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    generation: Generation = Generation()
    tools: dict[str, Tool] = field(default_factory=dict)
    has_dataset_tools: bool = False
    """True where the conversation came with tools of its own, which a flow's allow-list says nothing about."""
    index: Index | None = None
    top_k: int = 4
    memory: Memory | None = None
    memory_min_score: float | None = None
    """Cosine similarity from which a fact is relevant enough to be brought; None: whatever is nearest is brought."""
    files: Files = Files()
    bounds: Bounds = Bounds()
    price: Callable[[str, Usage], float | None] = lambda model, usage: None


class Traced:
    """A conversation and the plainest of its verbs; each appends one event to the trace."""

    def __init__(
        self, *, trace: Trace, gateway: Gateway, now: datetime, has: Has | None = None, stream: Stream | None = None
    ) -> None:
        self.trace = trace
        self.stream = stream or Stream()
        self.has = has or Has()
        self.now = now
        self.speaker = ""
        """Who speaks in this turn; "" where nobody said so."""
        self._gateway = gateway
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
        """`now`, which is when the turn began, and what the turn has taken since; a replay has the same moments."""
        return self.now + timedelta(seconds=self._clock.elapsed)

    def change(self, **parts: Any) -> None:
        """Go on with other `parts` of what the conversation has."""
        self.has = replace(self.has, **parts)

    def switch_to(self, other: Traced) -> None:
        """Answer from here on as `other` would, a session of the same conversation; what was said and counted stays."""
        self.has = other.has
        self._gateway.switch_to(other._gateway)

    def step(self, name: str, text: str = "") -> contextlib.AbstractContextManager[object]:
        """Group the events of the block under a named step."""
        return self._clock.timed(Step, None, name=name, text=text)

    def decide(self, name: str, choice: bool | str, why: str = "") -> bool | str:
        """Write a decision of the flow into the trace and return it."""
        with self._clock.timed(Decision, None, name=name, choice=choice, why=why):
            return choice

    def notify(self, name: str, text: str = "", **data: Any) -> None:
        """Tell whoever listens (notebook, log, ledger); the reply does not depend on it."""
        with self._clock.timed(Notice, None, name=name, text=text, data=data):
            pass

    def report(self, tool: str, text: str) -> None:
        """For tools: say how far the work is. It is shown and not kept."""
        self.stream.emit(ToolProgress(self._clock.scope.turn, tool, text))

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Any:
        """For tools: what `ask` brings from outside, JSON, recorded by `kind` and `facts`; raises what it raises.

        A ToolError, by which `ask` says that the other side did not answer, is recorded, too.
        """
        opened = self._clock.open("tool")
        return self._record_call(await self._gateway.fetch(kind, facts, ask), Fetch, opened, source=kind, facts=facts)

    async def _embed(self, text: str, phase: Phase, model: str) -> Any:
        opened = self._clock.open(phase)
        return self._record_call(await self._gateway.embed(text), EmbeddingCall, opened, model=model)

    def _record_call(self, answer: CallResult[T], kind: type[Event], opened: dict[str, Any], **facts: Any) -> T:
        """Write down one call as one event, say that it was not recorded, and raise what it failed with."""
        measured = ("seconds", "waited", "attempt", "origin", "error")
        self._clock.close(kind(**opened, **facts, **{name: getattr(answer, name) for name in measured}))
        if answer.miss is not None:
            self.notify(NOT_RECORDED, str(answer.miss), cause=answer.miss.cause)
        if answer.failure is not None:
            raise answer.failure
        return cast("T", answer.value)
