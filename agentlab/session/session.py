"""What a flow is handed: the traced verbs of one conversation.

    passages = await session.retrieve("When is a player offside?")
    completion = await session.complete(messages, tools=session.tool_specs())
    result = await session.call_tool(completion.message.tool_calls[0])

Every verb appends one event to the trace, with child events for its parts. A tool that fails becomes a message for the
model; every other error flies on to whoever plays the turn.

A model call takes five hops: whoever plays the turn (`workbench.conversation`) calls the flow's `respond`, that calls
`Session.complete`, that `Gateway.ask`, that the adapter's `complete`, and that the server.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from random import Random
from typing import Any, TypeVar, cast

from agentlab.core.constants import USAGE_UNKNOWN
from agentlab.core.errors import FATAL_ERRORS, ConfigError, ContextOverflow, NotRecorded, ToolError
from agentlab.core.events import Event, ModelCall, Notice, Phase, Search, ToolRun
from agentlab.core.messages import (
    Completion,
    Message,
    Passage,
    Request,
    ToolCall,
    ToolSpec,
    as_messages,
    to_json,
)
from agentlab.core.plugins import unknown_name
from agentlab.core.schemas import check_arguments, load_jsonschema
from agentlab.core.slot import Slot
from agentlab.core.stream import ReplyStream
from agentlab.session.background import BackgroundWork
from agentlab.session.history import History
from agentlab.session.memory_verbs import MemoryVerbs

log = logging.getLogger(__name__)
T = TypeVar("T")
REPLY_PHASES: tuple[Phase, ...] = ("answer", "fallback")
"""The phases whose calls write the reply."""
BYTES_PER_TOKEN = 4
"""In UTF-8: as many characters of English, and a little more than one of Chinese."""


class Session(MemoryVerbs, BackgroundWork):
    """One conversation in one flow. Clock, ids and randomness come from here, or a run could not be replayed."""

    def __init__(self, *, history: History | None = None, **parts: Any) -> None:
        super().__init__(**parts)
        self.history = history or History()
        self.random = Random(f"{self.has.generation.seed}/{self.trace.conversation}/{self.trace.epoch}")
        self._kept: dict[Slot[Any], Any] = {}
        self._speech: ReplyStream | None = None
        self._drafts = 0
        self._ids = 0
        if self.tools:
            load_jsonschema()

    def begin_turn(self, turn: int, speaker: str = "", now: datetime | None = None) -> None:
        """Called by whoever drives the flow, before each turn; without `now` it is as late as in the last one."""
        self.speaker = speaker
        self.now = now or self.now
        self._clock.begin_turn(turn)
        self._speech = None

    def forget_history(self) -> None:
        """Earlier messages are no longer read. Memory is kept.
        Background work for this conversation only is dropped, begun or not."""
        self.cancel_reset_scoped()
        self.history.forget()

    def add_history_turn(self, user: str, reply: str | None) -> None:
        """Put a turn into the stored chain that the flow is not asked about; no event is written."""
        self.history.save("user", user)
        if reply is not None:
            self.history.save("agent", reply)

    def state(self, slot: Slot[T]) -> T:
        """What `slot` holds in this conversation; opened at first use."""
        if slot not in self._kept:
            self._kept[slot] = slot.factory(self)
        return cast("T", self._kept[slot])

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids}"

    def prompt(self, name: str, **values: object) -> str:
        """The flow's prompt of that name, or what the spec put in its place, with its placeholders filled."""
        if name not in self.has.prompts:
            raise ConfigError(unknown_name("prompt of this flow (PROMPTS in its file)", name, self.has.prompts))
        return self.has.prompts[name].format(**values)

    def prompt_or_default(self, name: str, otherwise: str) -> str:
        """For tools: the flow's prompt of that name, or the tool's own words where the flow has none."""
        return self.prompt(name) if name in self.has.prompts else otherwise

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def turn_events(self) -> list[Event]:
        """What has happened in the turn that is being answered."""
        return self.trace.of_turn(self._clock.scope.turn)

    def turn_passages(self) -> tuple[Passage, ...]:
        """The passages retrieved so far in this turn, in the order they were found, each once."""
        found = {p.id: p for event in self.turn_events() if isinstance(event, Search) for p in event.passages}
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
            temperature=self.has.generation.temperature,
            seed=self.has.generation.seed,
            max_tokens=max_tokens or self.has.generation.max_tokens,
        )
        self._check_length(request, phase or "answer")
        opened = self._clock.open(phase)
        facts: dict[str, Any] = {"model": self._gateway.name, "request": request}
        if self.stream.has_listeners:
            self._clock.emit_start(ModelCall(**opened | {"phase": phase or "answer"}, **facts))
        speech = self._open_reply_stream(phase, shows or (_show_nothing if output_schema else str))
        answer = await self._gateway.ask(request, self._clock.place, speech.add, speech.retract)
        completion = answer.value
        calls_tools = completion is not None and completion.message.tool_calls
        if calls_tools or isinstance(answer.failure, Exception):
            speech.retract()
        opened["phase"] = phase or ("select_tool" if calls_tools else "answer")
        cost = self.has.price(self._gateway.name, completion.usage) if completion is not None else None
        try:
            return self._record_call(answer, ModelCall, opened, **facts, completion=completion, cost_usd=cost)
        finally:
            told = (event.name for event in self.trace.events if isinstance(event, Notice))
            if answer.invalid_usage and USAGE_UNKNOWN not in told:
                self.notify(
                    USAGE_UNKNOWN, f"{self._gateway.name} reported {answer.invalid_usage}; it counts as unknown"
                )

    def _open_reply_stream(self, phase: Phase | None, shows: Callable[[str], str]) -> ReplyStream:
        scope = self._clock.scope
        if scope.background or self._drafts or not (phase is None or phase in REPLY_PHASES):
            shows = _show_nothing
        elif self._speech is not None:
            # The reply is what the last answering call says.
            self._speech.retract()
        speech = ReplyStream(self.stream, scope.turn, shows)
        if shows is not _show_nothing:
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

    def _check_length(self, request: Request, asking: str) -> None:
        limit = self.has.bounds.tokens
        if limit is None:
            return
        # Tools and schema are read by the model like the rest, and may come from a stranger's server.
        beside = [
            json.dumps(to_json(part), ensure_ascii=False) for part in (*request.tools, request.output_schema) if part
        ]
        texts = [*(message.text for message in request.messages), *beside]
        tokens = sum(len(text.encode("utf-8", "replace")) for text in texts) // BYTES_PER_TOKEN
        if tokens > limit:
            problem = f"{asking}: the request has about {tokens} tokens, the limit is {limit}"
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
                passages = await self.index.search(query, vector, top_k=top_k or self.has.top_k, doc_ids=wanted)
                facts["passages"] = passages
        return passages

    async def call_tool(self, call: ToolCall) -> Message:
        """Run a tool and return the message that answers the call; whatever goes wrong is said in it."""
        with self._clock.timed(ToolRun, "tool", call=call) as facts:
            try:
                output = await self._run_tool(call)
            except (NotRecorded, *FATAL_ERRORS):
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

    def load_conversation(self, limit: int | None = None) -> tuple[Message, ...]:
        """The stored messages that lead up to this turn, oldest first, at most `limit` of them."""
        with self.step("load_conversation"):
            return self.history.chain(limit)

    def save_message(self, role: str, text: str, *, speaker: str | None = None) -> None:
        """Add a message to the stored ones, as a reply to the last one."""
        with self.step(f"save_message {role}"):
            self.history.save(role, text, speaker)


def _show_nothing(said: str) -> str:
    return ""
