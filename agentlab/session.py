"""What a flow is handed: the traced verbs, and the protocols of what stands behind them.

    passages = await session.retrieve("When is a player offside?")
    completion = await session.complete(messages, tools=session.tool_specs())
    result = await session.call_tool(completion.message.tool_calls[0])

Every verb appends one event to the trace, with child events for its parts. Retries live here and nowhere else. A tool
that fails becomes a message for the model; every other error flies on to the runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from agentlab.arguments import check_arguments
from agentlab.errors import ModelError, RateLimited, Retryable, ToolError
from agentlab.events import Decision, EmbeddingCall, Event, MemoryOp, ModelCall, Notice, Phase, Search, Step, ToolRun
from agentlab.messages import Citation, Completion, Message, Passage, Request, ToolCall, ToolSpec
from agentlab.protocols import History, Index, Memory, Tool, Wire
from agentlab.trace import Trace

log = logging.getLogger(__name__)
T = TypeVar("T")
BACK_OFF = 0.5
"""Seconds before the first retry of a model call; doubled with every further one."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Sampling settings of every completion of a session."""

    temperature: float | None = 0.0
    seed: int | None = 7
    max_tokens: int | None = 256


@dataclass(frozen=True)
class _Scope:
    """Where in the trace the running code is: the event it belongs to, and what it came after."""

    turn: int = 0
    parent: int | None = None
    after: tuple[int, ...] = ()


_scope: ContextVar[_Scope] = ContextVar("agentlab_scope", default=_Scope())  # noqa: B039 (it is frozen)


class Session:
    """One conversation in one flow. Clock, ids and randomness come from here, or a run could not be replayed."""

    def __init__(
        self,
        *,
        trace: Trace,
        wire: Wire,
        history: History,
        now: datetime,
        generation: Generation = Generation(),
        index: Index | None = None,
        top_k: int = 4,
        memory: Memory | None = None,
        tools: Sequence[Tool] = (),
        settings: Any = None,
        prompts: Mapping[str, str] | None = None,
        reply_to: int | None = None,
        price: Callable[[str, Completion], float | None] = lambda model, completion: None,
        retries: int = 3,
        on_text: Callable[[int, str], None] = lambda event_id, text: None,
    ) -> None:
        self.trace = trace
        self.index = index
        self.memory = memory
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        self.settings = settings
        self.now = now
        self.random = random.Random(f"{generation.seed}/{trace.conversation}/{trace.epoch}")
        self.state: dict[str, Any] = {}
        """Whatever a flow keeps from turn to turn of this conversation."""
        self._wire = wire
        self._history = history
        self._tip = reply_to
        self._generation = generation
        self.top_k = top_k
        self._prompts = dict(prompts or {})
        self._price = price
        self._retries = retries
        self._on_text = on_text
        self._opened = time.perf_counter()
        self._ids = 0

    def begin_turn(self, turn: int) -> None:
        """Called by whoever drives the flow, before each turn."""
        _scope.set(_Scope(turn=turn))

    def forget_history(self) -> None:
        """Start a new chain: earlier messages stay in the database but are no longer read. Memory is kept."""
        self._tip = None

    def add_unscored(self, user: str, reply: str | None) -> None:
        """Put a turn into the stored chain that the flow is not asked about; no event is written."""
        self._store("user", user)
        if reply is not None:
            self._store("agent", reply)

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self._ids}"

    def prompt(self, name: str, **values: object) -> str:
        """The flow's prompt of that name, or what the spec put in its place, with its placeholders filled."""
        return self._prompts[name].format(**values)

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    def events_of_turn(self) -> list[Event]:
        """What has happened in the turn that is being answered."""
        return self.trace.of_turn(_scope.get().turn)

    def passages_of_turn(self) -> tuple[Passage, ...]:
        """The passages retrieved so far in this turn, in the order they were found, each once."""
        found = {p.id: p for event in self.events_of_turn() if isinstance(event, Search) for p in event.passages}
        return tuple(found.values())

    # The verbs.

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        tool_choice: str = "auto",
        output_schema: dict[str, Any] | None = None,
        phase: Phase | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        """Ask the model. Without `phase`, a reply with tool calls is charged to select_tool, any other to answer."""
        request = Request(
            messages=tuple(messages),
            tools=tuple(tools),
            tool_choice=tool_choice,
            output_schema=output_schema,
            temperature=self._generation.temperature,
            seed=self._generation.seed,
            max_tokens=max_tokens or self._generation.max_tokens,
        )
        opened = self._open(phase)
        said: list[str] = []

        def emit(text: str) -> None:
            said.append(text)
            self._on_text(opened["id"], text)

        def record(completion: Completion | None, **measured: Any) -> None:
            calls_tools = completion is not None and completion.message.tool_calls
            measured["phase"] = phase or ("select_tool" if calls_tools else "answer")
            measured["cost_usd"] = self._price(self._wire.name, completion) if completion else None
            facts = {"model": self._wire.name, "request": request, "completion": completion}
            self._close(ModelCall(**{**opened, **facts, **measured}))

        attempt, lost = 1, 0.0
        while True:
            began = time.perf_counter()
            try:
                answer = await self._wire.complete(request, emit, epoch=self.trace.epoch)
                break
            except asyncio.CancelledError:
                spent = time.perf_counter() - began
                partial = Completion(
                    message=Message(role="agent", text="".join(said)),
                    model=self._wire.name,
                    finish_reason="interrupted",
                )
                record(partial, seconds=spent, waited=lost, attempt=attempt, error="interrupted")
                raise
            except ModelError as error:
                lost += time.perf_counter() - began
                if not isinstance(error, Retryable) or attempt > self._retries:
                    record(None, waited=lost, attempt=attempt, error=f"{type(error).__name__}: {error}")
                    raise
                pause = BACK_OFF * 2 ** (attempt - 1) * (0.75 + self.random.random() / 2)
                if isinstance(error, RateLimited) and error.retry_after is not None:
                    pause = max(pause, min(error.retry_after, 60.0))
                log.warning("%s; attempt %d, again in %.1f s", error, attempt, pause)
                said.clear()
                await asyncio.sleep(pause)
                lost += pause
                attempt += 1
        record(
            answer.completion,
            seconds=answer.seconds,
            waited=lost + answer.waited,
            attempt=attempt,
            origin=answer.origin,
        )
        return answer.completion

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
                with self._timed(EmbeddingCall, "retrieve", model=self.index.embedder.name):
                    vector = (await self.index.embedder.embed([query]))[0]
            wanted = None if doc_ids is None else tuple(doc_ids)
            with self._timed(Search, "retrieve", query=query, doc_ids=wanted) as facts:
                passages = await self.index.search(query, vector, top_k=top_k or self.top_k, doc_ids=wanted)
                facts["passages"] = passages
        return passages

    async def call_tool(self, call: ToolCall) -> Message:
        """Run a tool and return the message that answers the call; whatever goes wrong is said in it."""
        with self._timed(ToolRun, "tool", call=call) as facts:
            try:
                output = await self._run_tool(call)
            except ToolError as refusal:
                facts["error"], output = str(refusal), f"Error: {refusal}"
            except Exception as failure:
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
        check_arguments(tool.spec, call.arguments)
        return await tool.run(call.arguments, self)

    async def recall(self, text: str, *, top_k: int = 3) -> tuple[str, ...]:
        """What long-term memory holds that is near to `text`, nearest first; () where there is no memory."""
        if self.memory is None:
            return ()
        with self._timed(MemoryOp, "memory_read", op="recall", text=text) as facts:
            facts["items"] = tuple(await self.memory.search(text, top_k))
        return tuple(facts["items"])

    async def remember(self, text: str) -> str | None:
        """Write `text` to long-term memory and return its id; None where there is no memory."""
        if self.memory is None:
            return None
        with self._timed(MemoryOp, "memory_write", op="remember", text=text) as facts:
            stored = await self.memory.add(text)
            facts["items"] = (stored,)
        return stored

    def decide(self, name: str, choice: bool | str, why: str = "") -> bool | str:
        """Write a decision of the flow into the trace and return it."""
        with self._timed(Decision, None, name=name, choice=choice, why=why):
            return choice

    def notify(self, name: str, text: str = "", **data: Any) -> None:
        """Tell whoever listens (notebook, log, ledger); the reply does not depend on it."""
        with self._timed(Notice, None, name=name, text=text, data=data):
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

    @contextlib.contextmanager
    def step(self, name: str, text: str = "") -> Iterator[None]:
        """Group the events of the block under a named step."""
        with self._timed(Step, None, name=name, text=text):
            yield

    async def parallel(self, *work: Awaitable[T]) -> list[T]:
        """Run awaitables side by side; what comes next waits for all of them. If one fails, the others are ended."""

        async def tracked(inner: Awaitable[T]) -> tuple[T, tuple[int, ...]]:
            return await inner, _scope.get().after

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(tracked(inner)) for inner in work]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        done = [task.result() for task in tasks]
        if done:
            after = sorted({event_id for _, ids in done for event_id in ids})
            _scope.set(replace(_scope.get(), after=tuple(after)))
        return [result for result, _ in done]

    # How an event gets its place in the trace.

    def _open(self, phase: Phase | None) -> dict[str, Any]:
        scope = _scope.get()
        start = time.perf_counter() - self._opened
        where = {"turn": scope.turn, "parent": scope.parent, "after": scope.after}
        return {"id": self.trace.next_id(), "phase": phase, "start": start, **where}

    def _close(self, event: Event) -> None:
        self.trace.append(event)
        _scope.set(replace(_scope.get(), after=(event.id,)))

    @contextlib.contextmanager
    def _timed(self, kind: type[Event], phase: Phase | None, **facts: Any) -> Iterator[dict[str, Any]]:
        """Measure the block as one event; what the block puts into the yielded dict becomes fields of the event."""
        opened = self._open(phase)
        outer = _scope.get()
        _scope.set(replace(outer, parent=opened["id"], after=()))
        began = time.perf_counter()
        try:
            yield facts
        except BaseException as failure:
            facts["error"] = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            _scope.set(outer)
            self._close(kind(**opened, seconds=time.perf_counter() - began, **facts))
