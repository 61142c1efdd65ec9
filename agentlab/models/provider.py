"""Base class of a provider: four methods between the internal format and its own.

    translate            the request, in the provider's words
    call                 one stateless call with the whole conversation, streamed
    parse                what came back, as a completion
    format_tool_result   the answer to one tool call, in the provider's words

`complete` puts them one after the other, within a time, and makes of whatever a server sends that nobody can read an
error that may be tried again. It runs inside the session's traced verb, so that retries, recordings and the ledger are
the same for every provider, and an orchestration knows none of them. Below stands what adapters share.
"""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from agentlab.core.errors import ServerFault, Unreachable, UnreadableAnswer
from agentlab.core.messages import Completion, Request, Usage
from agentlab.core.protocols import Emit

log = logging.getLogger(__name__)
WireRequest = TypeVar("WireRequest")
"""A request as the provider takes it."""
WireResponse = TypeVar("WireResponse")
"""Response of the provider."""


class Provider(ABC, Generic[WireRequest, WireResponse]):
    """The base of an adapter; it is a `Model` once it has a `name`, `parallel` and these four methods."""

    name: str
    parallel: int | None = None
    is_rate_limited: bool = False
    """True of a server that refuses calls beyond so many a minute, or at once."""
    timeout: float | None = None
    """Seconds for a whole answer, however often something of it arrives; None: no limit."""

    @abstractmethod
    def translate(self, request: Request) -> WireRequest:
        """Put the request into the provider's form; raises BadRequest or ContextOverflow for what cannot be put."""

    @abstractmethod
    async def call(self, wired: WireRequest, emit: Emit) -> WireResponse:
        """Ask once, handing pieces of the answer's text to `emit` as they arrive; raises ModelError."""

    @abstractmethod
    def parse(self, raw: WireResponse, request: Request) -> Completion:
        """The answer's text, all its tool calls with an id each, usage and finish reason; raises ModelError."""

    @abstractmethod
    def format_tool_result(self, call_id: str, name: str, result: str) -> Any:
        """The answer to the tool call `call_id`, as `translate` puts it among the messages."""

    thinks: bool = False
    """True of a model that thinks before it answers: its thought has room beside the answer."""

    def output_limit(self, request: Request) -> int | None:
        """Most tokens of thought and answer together, as providers count them."""
        room = request.thought_tokens
        if room is None:
            room = THOUGHT_TOKENS if self.thinks else 0
        return None if request.max_tokens is None else request.max_tokens + room

    async def complete(self, request: Request, emit: Emit) -> Completion:
        """A model whose thought left no room for an answer is asked once more, with room for both."""
        limit = self.output_limit(request)
        completion = await self._complete(request, emit)
        if not _is_all_thought(completion):
            return completion
        if not self.thinks and request.thought_tokens is None:
            log.warning("%s thinks first: it gets %d tokens for that from here on", self.name, THOUGHT_TOKENS)
            self.thinks = True
        if limit != self.output_limit(request):
            first, completion = completion, await self._complete(request, emit)
            completion = replace(completion, usage=_sum(first.usage, completion.usage))
        if _is_all_thought(completion):
            limit = self.output_limit(request)
            stopped = f"cut at {limit} tokens, all of them thought; generation.thought_tokens gives more"
            completion = replace(completion, stopped=stopped)
        return completion

    async def _complete(self, request: Request, emit: Emit) -> Completion:
        wired = self.translate(request)
        size = 0
        own: BaseException | None = None

        def emit_text(piece: str) -> None:
            nonlocal size, own
            size += len(piece) if isinstance(piece, str) else MAX_CHARS + 1
            if size > MAX_CHARS:
                raise ServerFault("the server sent no text, or more of it than anybody reads", self.name)
            try:
                emit(piece)
            except Exception as failure:
                own = failure  # raised by a listener; the server is not at fault
                raise

        try:
            async with asyncio.timeout(self.timeout):
                return self.parse(await self.call(wired, emit_text), request)
        except TimeoutError:
            raise Unreachable("no answer in time", self.name) from None
        except UNREADABLE as problem:
            if problem is own:
                raise
            raise unreadable(problem, self.name) from None


def _is_all_thought(completion: Completion) -> bool:
    is_silent = not completion.message.text.strip() and not completion.message.tool_calls
    has_thought = bool(completion.usage.reasoning_tokens or completion.thought)
    return completion.finish_reason == "length" and is_silent and has_thought


def _sum(one: Usage, other: Usage) -> Usage:
    counts = {name: (getattr(one, name), getattr(other, name)) for name in Usage.__struct_fields__}
    return Usage(**{name: None if None in pair else sum(pair) for name, pair in counts.items()})


THOUGHT_TOKENS = 4_000
"""Default number of tokens for the thought of a model that thinks."""
MAX_CHARS = 10_000_000
"""Maximum size of an answer: a hundred times the longest reply of a model."""
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of code that reads an answer which breaks the protocol."""


def unreadable(problem: Exception, model: str) -> UnreadableAnswer:
    why = str(problem)[:200] if isinstance(problem, ValueError) else "it is not as the protocol has it"
    return UnreadableAnswer(f"the server sent what cannot be read: {why}", model)


def wired_tools(request: Request) -> dict[str, str]:
    """The tools on offer and those called before, as `wire_names` puts them."""
    called = [call.name for message in request.messages if message.tool_calls for call in message.tool_calls]
    return wire_names([*(tool.name for tool in request.tools), *called]) if called or request.tools else {}


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Tool names as providers take them, each still its own: 1 to 64 letters, digits, `_` and `-`."""
    wired: dict[str, str] = {}
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        # Gemini wants a letter or `_` first; the others do not mind.
        plain = (plain if re.match("[a-zA-Z_]", plain) else f"_{plain}")[:64]
        number = 2
        candidate = plain
        while candidate in wired.values():
            candidate = f"{plain[:60]}_{number}"
            number += 1
        wired[name] = candidate
    return wired


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """The counts by OpenAI's names, or Anthropic's, as they were sent; what cannot be is left out further up."""
    prompt, output = (usage.get(f"{of}_tokens_details") for of in ("prompt", "completion"))
    return Usage(
        input_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
        reasoning_tokens=_count(output, "reasoning_tokens"),
    )


def _count(usage: Any, *names: str) -> Any:
    found = [usage[name] for name in names if usage.get(name) is not None] if isinstance(usage, Mapping) else []
    return (
        int(found[0]) if found and isinstance(found[0], str) and found[0].isdecimal() else found[0] if found else None
    )
