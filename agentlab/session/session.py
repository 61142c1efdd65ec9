"""Session of one conversation, with the verbs that a flow calls.

    passages = await session.retrieve("When is a player offside?")
    completion = await session.complete(messages, tools=session.tool_specs())
    result = await session.call_tool(completion.message.tool_calls[0])

Every verb appends one event to the trace, with child events for its parts. The failure of a tool becomes a message for
the model; every other error reaches the turn driver.

A model call takes five hops: `workbench.turn_driver` calls the flow's `respond`, then follow `Session.complete`,
`Gateway.ask`, the provider's `complete` and the server.
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

from msgspec.structs import replace

from agentlab.core.constants import REPLY_STOPPED, USAGE_UNKNOWN
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
    from_json,
    to_json,
)
from agentlab.core.plugins import check_names
from agentlab.core.protocols import CallSite
from agentlab.core.schemas import check_arguments, load_jsonschema
from agentlab.core.state_key import StateKey
from agentlab.core.stream import ReplyStream, StepStarted
from agentlab.core.strict_json import join_surrogates
from agentlab.session.background import BackgroundWork
from agentlab.session.history import History
from agentlab.session.memory_verbs import MemoryVerbs
from agentlab.session.own_searches import LookupTool, as_passage

log = logging.getLogger(__name__)
T = TypeVar("T")
REPLY_PHASES: tuple[Phase, ...] = ("answer", "fallback")
"""Phases of the calls that write the reply."""
BYTES_PER_TOKEN = 4
"""Estimate for UTF-8: four characters of English, or a little more than one of Chinese."""


class Session(MemoryVerbs, BackgroundWork):
    """One conversation in one flow. A flow takes its time, ids and random numbers from here, so that it replays."""

    def __init__(self, *, history: History | None = None, lookup: LookupTool | None = None, **parts: Any) -> None:
        super().__init__(**parts)
        self._lookup = lookup
        self.history = history or History()
        self.random = Random(f"{self.has.generation.seed}/{self.trace.conversation}/{self.trace.epoch}")
        self._states: dict[StateKey[Any], Any] = {}
        self._reply_stream: ReplyStream | None = None
        self._drafts: list[Callable[[], bool]] = []
        self._ids = 0
        if self.tools:
            load_jsonschema()

    def begin_turn(self, turn: int, speaker: str = "", now: datetime | None = None) -> None:
        """Prepare for the next turn; the turn driver calls this. Without `now` the last turn's time stays."""
        self.speaker = speaker
        self.now = now or self.now
        self._clock.begin_turn(turn)
        self._reply_stream = None

    def forget_history(self) -> None:
        """Delete the stored messages and cancel background tasks with `drop_on_reset`; memory stays."""
        self.cancel_reset_scoped()
        self.history.forget()

    def add_history_turn(self, user: str, reply: str | None) -> None:
        """Store a turn that the flow does not answer; writes no event."""
        self.history.save("user", user)
        if reply is not None:
            self.history.save("agent", reply)

    def state(self, key: StateKey[T]) -> T:
        """Return the value of `key` in this conversation, created at first use."""
        if key not in self._states:
            self._states[key] = key.factory(self)
        return cast("T", self._states[key])

    def new_id(self, prefix: str) -> str:
        """Return the next id of the conversation: `prefix_1`, `prefix_2` and so on."""
        self._ids += 1
        return f"{prefix}_{self._ids}"

    def prompt(self, name: str, **values: object) -> str:
        """Return the prompt of that name, from the spec or the flow, with its placeholders filled.

        Raises ConfigError for an unknown name.
        """
        check_names("prompt of this flow (PROMPTS in its file)", [name], self.has.prompts)
        return self.has.prompts[name].format(**values)

    def prompt_or_default(self, name: str, default: str) -> str:
        """Return the flow's prompt of that name, or the tool's `default`; for tools."""
        return self.prompt(name) if name in self.has.prompts else default

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the flow's tools, for `complete(tools=...)`."""
        return tuple(tool.spec for tool in self.tools.values())

    def turn_events(self) -> list[Event]:
        """Return the events of the current turn so far."""
        return self.trace.at(self._clock.scope.turn)

    def turn_passages(self) -> tuple[Passage, ...]:
        """Return the passages retrieved so far in this turn, in their order and without duplicates."""
        passages = {p.id: p for event in self.turn_events() if isinstance(event, Search) for p in event.passages}
        return tuple(passages.values())

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
        agent: str | None = None,
    ) -> Completion:
        """Call the model and return its completion (`.text`, `.message`); a text is one user message.

        Without `phase`, a completion with tool calls counts in select_tool, any other in answer.

        The text of a call in phase answer or fallback is streamed as it arrives. `shows` returns the visible part of
        the text so far; without it JSON is not streamed. Tool calls retract the streamed text. `agent` is the name of
        the model in the completion's message and the trace.
        """
        request = Request(
            messages=as_messages(messages),
            tools=tuple(tools),
            tool_choice=tool_choice,
            output_schema=output_schema,
            temperature=self.has.generation.temperature,
            seed=self.has.generation.seed,
            max_tokens=max_tokens or self.has.generation.max_tokens,
            thought_tokens=self.has.generation.thought_tokens,
        )
        self._check_length(request, phase or "answer")
        opened = self._clock.open(phase)
        facts: dict[str, Any] = {"model": self._gateway.name, "request": request}
        if self.stream.has_listeners:
            started = ModelCall(**opened | {"phase": phase or "answer"}, **facts)
            self.stream.emit(StepStarted(started.turn, started))
        reply_stream = self._open_reply_stream(phase, shows or (_show_nothing if output_schema else str))
        site = CallSite(opened["turn"], self._clock.scope.path)
        result = await self._gateway.ask(request, site, reply_stream.add, reply_stream.retract)
        completion = result.value
        if agent is not None and completion is not None:
            completion = replace(completion, message=replace(completion.message, name=agent))
        calls_tools = completion is not None and completion.message.tool_calls
        if calls_tools or isinstance(result.failure, Exception):
            reply_stream.retract()
        elif completion is not None and result.failure is None:
            reply_stream.settle(completion.text)
        opened["phase"] = phase or ("select_tool" if calls_tools else "answer")
        cost = self.has.price(self._gateway.name, completion.usage) if completion is not None else None
        try:
            return self._record_call(result, ModelCall, opened, **facts, completion=completion, cost_usd=cost)
        finally:
            if completion is not None and completion.stopped:
                self.notify(REPLY_STOPPED, completion.stopped)
            notices = (event.name for event in self.trace.events if isinstance(event, Notice))
            if result.invalid_usage and USAGE_UNKNOWN not in notices:
                self.notify(
                    USAGE_UNKNOWN, f"{self._gateway.name} reported {result.invalid_usage}; it counts as unknown"
                )

    def _open_reply_stream(self, phase: Phase | None, shows: Callable[[str], str]) -> ReplyStream:
        scope = self._clock.scope
        if (
            scope.background
            or any(not ended() for ended in self._drafts)
            or not (phase is None or phase in REPLY_PHASES)
        ):
            shows = _show_nothing
        elif self._reply_stream is not None:
            # The reply is the text of the last call in such a phase.
            self._reply_stream.retract()
        reply_stream = ReplyStream(self.stream, scope.turn, shows)
        if shows is not _show_nothing:
            self._reply_stream = reply_stream
        return reply_stream

    @contextlib.contextmanager
    def draft(self, until: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold back the text streamed inside this block, because it may not become the reply.

        A model call that begins after `until` returns True is streamed again.
        """
        self._drafts.append(until)
        try:
            yield
        finally:
            self._drafts.remove(until)

    def _check_length(self, request: Request, phase: str) -> None:
        limit = self.has.bounds.tokens
        if limit is None:
            return
        # The model also reads tools and schema, and an untrusted server may send long ones.
        schemas = [
            json.dumps(to_json(part), ensure_ascii=False) for part in (*request.tools, request.output_schema) if part
        ]
        texts = [*(message.text for message in request.messages), *schemas]
        tokens = sum(len(text.encode("utf-8", "replace")) for text in texts) // BYTES_PER_TOKEN
        if tokens > limit:
            problem = f"{phase}: the request has about {tokens} tokens, the limit is {limit}"
            self.notify("systemError", problem, title=f"Token limit: {phase}")
            raise ContextOverflow(problem)

    async def retrieve(
        self, query: str, *, top_k: int | None = None, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """Return the passages that fit `query`, best first; () without an index.

        Makes one embedding call and one search; an index without vectors (BM25) needs no embedding call.
        """
        if self.index is None:
            return ()
        with self.step("retrieve_context"):
            vector = None
            if self.index.embedder is not None:
                vector = await self._embed(query, "retrieve", self.index.embedder.name)
            ids, top_k = None if doc_ids is None else tuple(doc_ids), top_k or self.has.top_k
            if getattr(self.index, "source", None) is not None:
                return await self._search_outside(self.index, query, vector, top_k, ids)
            with self._clock.timed(Search, "retrieve", query=query, doc_ids=ids, index=self.index.name) as facts:
                passages = await self.index.search(query, vector, top_k=top_k, doc_ids=ids)
                facts["passages"] = passages
        return passages

    async def _search_outside(
        self, index: Any, query: str, vector: Any, top_k: int, ids: tuple[str, ...] | None
    ) -> tuple[Passage, ...]:
        """Search an index outside this process and record its passages; a replay finds them without the index."""

        async def ask() -> list[Any]:
            return [to_json(passage) for passage in await index.search(query, vector, top_k=top_k, doc_ids=ids)]

        request = {**index.source, "query": query, "top_k": top_k, "doc_ids": None if ids is None else list(ids)}
        opened = self._clock.open("retrieve")
        result = await self._gateway.fetch("search", request, ask)
        passages = tuple(from_json(Passage, row) for row in result.value or ())
        self._record_call(result, Search, opened, query=query, doc_ids=ids, index=index.name, passages=passages)
        return passages

    def note_search(self, documents: Sequence[Any], query: str = "") -> tuple[Passage, ...]:
        """Record a search of the flow's own retriever, and return its passages; () means no results.

        A document is a Passage, a mapping with `doc_id`, `text` and optional `title`, or the id of a document of the
        data set. Without this verb the look-ups of such a flow are unknown. Raises ConfigError for anything else.
        """
        passages = tuple(as_passage(each, self.index.documents if self.index else ()) for each in documents)
        with self._clock.timed(Search, "retrieve", query=query, index="own", passages=passages):
            return passages

    async def call_tool(self, call: ToolCall) -> Message:
        """Run a tool and return its message to the model; the message reports a failure of the tool."""
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
            facts["output"] = output = join_surrogates(output)
        if self._lookup is not None and call.name == self._lookup.tool and "error" not in facts:
            try:
                self.note_search(self._lookup.documents_of(output), json.dumps(call.arguments, ensure_ascii=False))
            except ConfigError as problem:
                self.notify("systemError", str(problem), title="lookup")
        return Message(role="tool", text=output, tool_call_id=call.id, name=call.name)

    async def _run_tool(self, call: ToolCall) -> str:
        tool = self.tools.get(call.name)
        if tool is None:
            raise ToolError(f"there is no tool {call.name!r}; there are: {', '.join(self.tools) or 'none'}")
        if call.malformed is not None:
            raise ToolError(self._cut_off(call) or f"the arguments of {call.name} are not a JSON object")
        defaults = getattr(tool, "defaults", {})
        written = {name: value for name, value in call.arguments.items() if value is not None or name not in defaults}
        arguments = {**defaults, **written}
        check_arguments(tool.spec, arguments)
        output = tool.run(arguments, self)
        return str(await output if inspect.isawaitable(output) else output)

    def _cut_off(self, call: ToolCall) -> str:
        """Return the problem of a call whose completion reached its token limit; "" for any other."""
        for event in reversed(self.turn_events()):
            if isinstance(event, ModelCall) and (completion := event.completion) is not None:
                calls = completion.message.tool_calls if self.has.generation.cut_off_arguments is None else ()
                if call.malformed in (completion.text, *(written.malformed for written in calls)):
                    return completion.cut_off
        return ""

    def load_conversation(self, limit: int | None = None) -> tuple[Message, ...]:
        """Return the last `limit` stored messages (None: all), oldest first."""
        with self.step("load_conversation"):
            return self.history.chain(limit)

    def save_message(self, role: str, text: str, *, speaker: str | None = None) -> None:
        """Store a message after the last one."""
        with self.step(f"save_message {role}"):
            self.history.save(role, text, speaker)


def _show_nothing(text: str) -> str:
    return ""
