"""What a flow is handed: the traced verbs of one conversation.

    passages = await session.retrieve("When is a player offside?")
    completion = await session.complete(messages, tools=session.tool_specs())
    result = await session.call_tool(completion.message.tool_calls[0])

Every verb appends one event to the trace, with child events for its parts. A tool that fails becomes a message for the
model; every other error flies on to whoever plays the turn.

A model call takes five hops: whoever plays the turn (`workbench.conversation`) calls the flow's `respond`, that calls
`Session.complete`, that `Gateway.ask`, that the adapter's `complete`, and that the provider's SDK.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from agentlab.core.errors import ENDS_RUN, ConfigError, ContextOverflow, NotRecorded, ToolError
from agentlab.core.events import Decision, EmbeddingCall, Event, Fetch, ModelCall, Notice, Phase, Search, Step, ToolRun
from agentlab.core.messages import (
    Citation,
    Completion,
    Message,
    Passage,
    Request,
    ToolCall,
    ToolSpec,
    Usage,
    as_messages,
    to_json,
)
from agentlab.core.names import NOT_RECORDED, USAGE_UNKNOWN
from agentlab.core.plugins import unknown
from agentlab.core.protocols import Answer, Gateway, History, Index, Memory, Tool
from agentlab.core.schemas import check_arguments, validators
from agentlab.core.slot import Slot
from agentlab.core.stream import Speech, Stream, ToolProgress
from agentlab.core.trace import Trace
from agentlab.session.background import BackgroundWork
from agentlab.session.clock import Clock
from agentlab.session.remembering import MemoryVerbs

log = logging.getLogger(__name__)
T = TypeVar("T")
ANSWERING: tuple[Phase, ...] = ("answer", "fallback")
"""The phases whose calls write the reply."""
_TAKEN_OVER = ("settings", "tools", "tools_are_brought", "index", "top_k", "memory", "memory_min_score")
BYTES_PER_TOKEN = 4
"""In UTF-8: as many characters of English, and a little more than one of Chinese."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Sampling settings of every completion of a session."""

    temperature: float | None = 0.0
    seed: int | None = 7
    max_tokens: int | None = 256


class Session(MemoryVerbs, BackgroundWork):
    """One conversation in one flow. Clock, ids and randomness come from here, or a run could not be replayed."""

    def __init__(
        self,
        *,
        trace: Trace,
        gateway: Gateway,
        history: History,
        now: datetime,
        generation: Generation = Generation(),
        index: Index | None = None,
        top_k: int = 4,
        memory: Memory | None = None,
        memory_min_score: float | None = None,
        folder: Path | None = None,
        files: Path | None = None,
        keeps_files: bool = False,
        tools: Sequence[Tool] = (),
        tools_are_brought: bool = False,
        settings: Any = None,
        prompts: Mapping[str, str] | None = None,
        reply_to: int | None = None,
        price: Callable[[str, Usage], float | None] = lambda model, usage: None,
        stream: Stream | None = None,
    ) -> None:
        super().__init__()
        self.trace = trace
        self.stream = stream or Stream()
        self.index = index
        self.memory = memory
        self.memory_min_score = memory_min_score
        self.files = files
        """The folder that the file tools begin with; None: an empty one."""
        self.keeps_files = keeps_files
        """Whether they work in it, or in a copy that goes with the session."""
        self.folder = folder
        """Where a flow may keep files for the conversations to come; None where it must not, as in a comparison."""
        self.turn_seconds: float | None = None
        """How long a turn may take, and all of them, by the clock on the wall; kept by whoever drives the flow."""
        self.conversation_seconds: float | None = None
        self.token_limit: int | None = None
        """Set by a flow: longer requests are rejected, whoever asks; estimated, four bytes of text a token."""
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        if tools:
            validators()
        self.tools_are_brought = tools_are_brought
        """True where the conversation came with tools of its own, which a flow's allow-list says nothing about."""
        self.settings = settings
        self.now = now
        self.speaker = ""
        self.random = random.Random(f"{generation.seed}/{trace.conversation}/{trace.epoch}")
        self._kept: dict[Slot[Any], Any] = {}
        self.chapter = 0  # how often the history was forgotten; a flow that keeps one of its own then does the same
        self._gateway = gateway
        self._clock = Clock(trace, self.stream, gateway.recorded_duration)
        self._history = history
        self._tip = reply_to
        self._generation = generation
        self.top_k = top_k
        self._prompts = dict(prompts or {})
        self._price = price
        self._speech: Speech | None = None
        self._drafts = 0
        self._told_of_usage = False
        self._ids = 0

    def begin_turn(self, turn: int, speaker: str = "") -> None:
        """Called by whoever drives the flow, before each turn."""
        self.speaker = speaker
        self._clock.begin_turn(turn)
        self._speech = None

    def forget_history(self) -> None:
        """Start a new chain: earlier messages stay in the database but are no longer read. Memory is kept.
        Background work for this conversation only is dropped, begun or not."""
        self.drop_only_here()
        self._tip = None
        self.chapter += 1

    def go_on_as(self, other: Session) -> None:
        """Answer from here on as `other` would, a session of the same conversation; what was said and counted stays."""
        vars(self).update({name: vars(other)[name] for name in _TAKEN_OVER})
        self._prompts, self._generation = other._prompts, other._generation
        self._gateway.go_on_as(other._gateway)

    def add_unscored(self, user: str, reply: str | None) -> None:
        """Put a turn into the stored chain that the flow is not asked about; no event is written."""
        self._store("user", user)
        if reply is not None:
            self._store("agent", reply)

    def kept(self, slot: Slot[T]) -> T:
        """What `slot` holds in this conversation; opened at first use."""
        if slot not in self._kept:
            self._kept[slot] = slot.opened(self)
        return cast("T", self._kept[slot])

    @property
    def moment(self) -> datetime:
        """`now`, which is when the turn began, and what the turn has taken since; a replay has the same moments."""
        return self.now + timedelta(seconds=self._clock.elapsed)

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids}"

    def prompt(self, name: str, **values: object) -> str:
        """The flow's prompt of that name, or what the spec put in its place, with its placeholders filled."""
        if name not in self._prompts:
            raise ConfigError(unknown("prompt of this flow (PROMPTS in its file)", name, self._prompts))
        return self._prompts[name].format(**values)

    def prompt_or(self, name: str, otherwise: str) -> str:
        """For tools: the flow's prompt of that name, or the tool's own words where the flow has none."""
        return self.prompt(name) if name in self._prompts else otherwise

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def events_of_turn(self) -> list[Event]:
        """What has happened in the turn that is being answered."""
        return self.trace.of_turn(self._clock.scope.turn)

    def passages_of_turn(self) -> tuple[Passage, ...]:
        """The passages retrieved so far in this turn, in the order they were found, each once."""
        found = {p.id: p for event in self.events_of_turn() if isinstance(event, Search) for p in event.passages}
        return tuple(found.values())

    # The verbs.

    async def complete(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        tool_choice: str = "auto",
        output_schema: dict[str, Any] | None = None,
        phase: Phase | None = None,
        max_tokens: int | None = None,
        shows: Callable[[str], str] | None = None,
    ) -> Completion:
        """Ask the model; a text is one message of the user's. What it says is `.text`, its message `.message`.

        Without `phase`, a reply with tool calls is charged to select_tool, any other to answer.

        What an answering call says is part of the reply, and goes into the stream as it arrives: of JSON only what
        `shows` makes of all that was said so far, and nothing once it turns out that tools are called.
        """
        request = Request(
            messages=as_messages(messages),
            tools=tuple(tools),
            tool_choice=tool_choice,
            output_schema=output_schema,
            temperature=self._generation.temperature,
            seed=self._generation.seed,
            max_tokens=max_tokens or self._generation.max_tokens,
        )
        self._check_length(request, phase or "answer")
        opened = self._clock.open(phase)
        facts: dict[str, Any] = {"model": self._gateway.name, "request": request}
        if self.stream.is_heard:
            self._clock.begun(ModelCall(**opened | {"phase": phase or "answer"}, **facts))
        speech = self._begin_speech(phase, shows or (_nothing if output_schema else str))
        answer = await self._gateway.ask(request, self._clock.place, speech.add, speech.take_back)
        completion = answer.value
        calls_tools = completion is not None and completion.message.tool_calls
        if calls_tools or isinstance(answer.failure, Exception):
            speech.take_back()
        opened["phase"] = phase or ("select_tool" if calls_tools else "answer")
        cost = self._price(self._gateway.name, completion.usage) if completion is not None else None
        try:
            return self._settled(answer, ModelCall, opened, **facts, completion=completion, cost_usd=cost)
        finally:
            if answer.odd and not self._told_of_usage:
                self._told_of_usage = True
                self.notify(USAGE_UNKNOWN, f"{self._gateway.name} reported {answer.odd}; it counts as unknown")

    def _begin_speech(self, phase: Phase | None, shows: Callable[[str], str]) -> Speech:
        scope = self._clock.scope
        if scope.background or self._drafts or not (phase is None or phase in ANSWERING):
            shows = _nothing
        elif self._speech is not None:
            # The reply is what the last answering call says.
            self._speech.take_back()
        speech = Speech(self.stream, scope.turn, shows)
        if shows is not _nothing:
            self._speech = speech
        return speech

    @contextlib.contextmanager
    def draft(self) -> Iterator[None]:
        """What is said inside may be thrown away, so that whoever reads the reply sees it only if it becomes that."""
        self._drafts += 1
        try:
            yield
        finally:
            self._drafts -= 1

    def _settled(self, answer: Answer[T], kind: type[Event], opened: dict[str, Any], **facts: Any) -> T:
        """Write down one call as one event, say that it was not recorded, and raise what it failed with."""
        measured = ("seconds", "waited", "attempt", "origin", "error")
        self._clock.close(kind(**opened, **facts, **{name: getattr(answer, name) for name in measured}))
        if answer.missed is not None:
            self.notify(NOT_RECORDED, str(answer.missed), cause=answer.missed.cause)
        if answer.failure is not None:
            raise answer.failure
        return cast("T", answer.value)

    def _check_length(self, request: Request, asking: str) -> None:
        if self.token_limit is None:
            return
        # Tools and schema are read by the model like the rest, and may come from a stranger's server.
        beside = [
            json.dumps(to_json(part), ensure_ascii=False) for part in (*request.tools, request.output_schema) if part
        ]
        texts = [*(message.text for message in request.messages), *beside]
        tokens = sum(len(text.encode("utf-8", "replace")) for text in texts) // BYTES_PER_TOKEN
        if tokens > self.token_limit:
            problem = f"{asking}: the request has about {tokens} tokens, the limit is {self.token_limit}"
            self.notify("systemError", problem, title=f"Token limit: {asking}")
            raise ContextOverflow(problem)

    async def retrieve(
        self, query: str, *, top_k: int | None = None, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """The passages that fit `query`, best first; () where there is no index.

        One embedding call and one search; an index that needs no query vector (BM25) makes no embedding call.
        """
        if self.index is None:
            return ()
        with self.step("retrieve_context"):
            vector = None
            if self.index.embedder is not None:
                vector = await self._embed(query, "retrieve", self.index.embedder.name)
            wanted = None if doc_ids is None else tuple(doc_ids)
            with self._clock.timed(Search, "retrieve", query=query, doc_ids=wanted, index=self.index.name) as facts:
                passages = await self.index.search(query, vector, top_k=top_k or self.top_k, doc_ids=wanted)
                facts["passages"] = passages
        return passages

    async def _embed(self, text: str, phase: Phase, model: str) -> Any:
        opened = self._clock.open(phase)
        return self._settled(await self._gateway.embed(text), EmbeddingCall, opened, model=model)

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Any:
        """For tools: what `ask` brings from outside, JSON, recorded by `kind` and `facts`; raises what it raises.

        A ToolError, by which `ask` says that the other side did not answer, is recorded, too.
        """
        opened = self._clock.open("tool")
        return self._settled(await self._gateway.fetch(kind, facts, ask), Fetch, opened, source=kind, facts=facts)

    async def call_tool(self, call: ToolCall) -> Message:
        """Run a tool and return the message that answers the call; whatever goes wrong is said in it."""
        with self._clock.timed(ToolRun, "tool", call=call) as facts:
            try:
                output = await self._run_tool(call)
            except (NotRecorded, *ENDS_RUN):
                raise
            except ToolError as refusal:
                facts["error"], output = str(refusal), f"Error: {refusal}"
            except (Exception, SystemExit) as failure:
                log.warning("tool %s failed", call.name, exc_info=True)
                facts["error"] = f"{type(failure).__name__}: {failure}"
                output = f"Error: the tool {call.name} failed: {facts['error']}"
            facts["output"] = output
        return Message(role="tool", text=output, tool_call_id=call.id, name=call.name)

    async def _run_tool(self, call: ToolCall) -> str:
        tool = self.tools.get(call.name)
        if tool is None:
            raise ToolError(f"there is no tool {call.name!r}; there are: {', '.join(self.tools) or 'none'}")
        if call.malformed is not None:
            raise ToolError(f"the arguments of {call.name} are not a JSON object")
        defaults = getattr(tool, "defaults", {})
        written = {name: value for name, value in call.arguments.items() if value is not None or name not in defaults}
        arguments = {**defaults, **written}
        check_arguments(tool.spec, arguments)
        output = tool.run(arguments, self)
        return str(await output if inspect.isawaitable(output) else output)

    def decide(self, name: str, choice: bool | str, why: str = "") -> bool | str:
        """Write a decision of the flow into the trace and return it."""
        with self._clock.timed(Decision, None, name=name, choice=choice, why=why):
            return choice

    def report(self, tool: str, text: str) -> None:
        """For tools: say how far the work is. It is shown and not kept."""
        self.stream.emit(ToolProgress(self._clock.scope.turn, tool, text))

    def notify(self, name: str, text: str = "", **data: Any) -> None:
        """Tell whoever listens (notebook, log, ledger); the reply does not depend on it."""
        with self._clock.timed(Notice, None, name=name, text=text, data=data):
            pass

    def load_conversation(self, limit: int | None = None) -> tuple[Message, ...]:
        """The chain of messages that leads up to this turn, oldest first, at most `limit` of them."""
        with self.step("load_conversation"):
            return () if self._tip is None else self._history.chain(self._tip, limit)

    def save_message(
        self, role: str, text: str, *, speaker: str | None = None, citations: Sequence[Citation] = ()
    ) -> None:
        """Add a message to the stored chain, as a reply to the last one."""
        with self.step(f"save_message {role}"):
            self._store(role, text, speaker=speaker, citations=citations)

    def _store(self, role: str, text: str, *, speaker: str | None = None, citations: Sequence[Citation] = ()) -> None:
        self._tip = self._history.save(
            self.trace.conversation,
            role,
            text,
            reply_to=self._tip,
            speaker=speaker,
            citations=citations,
            created=self.now,
        )

    def step(self, name: str, text: str = "") -> contextlib.AbstractContextManager[object]:
        """Group the events of the block under a named step."""
        return self._clock.timed(Step, None, name=name, text=text)


def _nothing(said: str) -> str:
    return ""
