"""Base class of a provider: four methods between the internal format and its own.

    translate            request -> the provider's form
    call                 one stateless call with the whole conversation, streamed
    parse                response -> completion
    format_tool_result   result of one tool call -> the provider's form

`complete` calls them in this order, within the time limit. An unreadable response is an error that permits a retry. It
runs inside the session's traced verb. So retries, recordings and the ledger are the same for every provider, and a flow
does not know its provider. The functions below the class are shared by the adapters.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from agentlab.core.errors import ModelError, ServerFault, Unreachable, UnreadableAnswer
from agentlab.core.messages import Completion, Request, Usage
from agentlab.core.protocols import Emit

log = logging.getLogger(__name__)
WireRequest = TypeVar("WireRequest")
"""Request in the form of the provider."""
WireResponse = TypeVar("WireResponse")
"""Response in the form of the provider."""


class Provider(ABC, Generic[WireRequest, WireResponse]):
    """Base of an adapter. With a `name`, `parallel` and these four methods it is a `Model`."""

    name: str
    parallel: int | None = None
    is_rate_limited: bool = False
    """True for a server with limits of calls per minute or of parallel calls."""
    timeout: float | None = None
    """Seconds for a whole response, even if pieces of it keep arriving; None: no limit."""

    @abstractmethod
    def translate(self, request: Request) -> WireRequest:
        """Return the request in the provider's form; raises BadRequest or ContextOverflow if it has none."""

    @abstractmethod
    async def call(self, wired: WireRequest, emit: Emit) -> WireResponse:
        """Call the model once and pass each piece of the text to `emit` as it arrives; raises ModelError."""

    @abstractmethod
    def parse(self, raw: WireResponse, request: Request) -> Completion:
        """Return text, tool calls (each with an id), usage and finish reason of a response; raises ModelError."""

    @abstractmethod
    def format_tool_result(self, call_id: str, name: str, result: str) -> Any:
        """Return the result of the tool call `call_id` in the form of the provider's messages."""

    thinks: bool = False
    """True for a model that thinks before its reply; the thought gets additional tokens."""

    def output_limit(self, request: Request) -> int | None:
        """Return the maximum tokens of thought and reply together, as providers count them."""
        room = request.thought_tokens
        if room is None:
            room = THOUGHT_TOKENS if self.thinks else 0
        return None if request.max_tokens is None else request.max_tokens + room

    async def complete(self, request: Request, emit: Emit) -> Completion:
        """Return the completion; if the thought used all tokens, call the model once more with tokens for both."""
        completion: Completion | None = None
        limit: int | None = None
        while completion is None or (_is_all_thought(completion) and limit != self.output_limit(request)):
            limit, before = self.output_limit(request), completion
            wired = self.translate(request)
            with checked_response(self.name, emit) as checked_emit:
                async with asyncio.timeout(self.timeout):
                    completion = self.parse(await self.call(wired, checked_emit), request)
            if before is not None:
                completion = replace(completion, usage=sum_usage(before.usage, completion.usage))
            elif _is_all_thought(completion) and not self.thinks and request.thought_tokens is None:
                log.warning("%s thinks first: from now on it gets %d tokens for its thought", self.name, THOUGHT_TOKENS)
                self.thinks = True
        if _is_all_thought(completion):
            stopped = f"truncated at {limit} tokens, all of them thought; generation.thought_tokens gives more"
            completion = replace(completion, stopped=stopped)
        return completion


@contextlib.contextmanager
def checked_response(model: str, emit: Emit = lambda piece: None) -> Iterator[Emit]:
    """Yield `emit` with a check of each piece, and turn errors that an answer causes in the block into ModelErrors."""
    size = 0
    own: BaseException | None = None

    def checked_emit(piece: str) -> None:
        nonlocal size, own
        size += len(piece) if isinstance(piece, str) else MAX_CHARS + 1
        if size > MAX_CHARS:
            raise ServerFault(f"the server sent no text, or more than {MAX_CHARS:,} characters", model)
        try:
            emit(piece)
        except Exception as failure:
            own = failure  # raised by a listener; the server is not at fault
            raise

    try:
        yield checked_emit
    except TimeoutError:
        raise Unreachable("no answer in time", model) from None
    except ModelError as problem:
        if not problem.model and problem is not own:
            problem.model, problem.args = model, (f"{model}: {problem}",)
        raise
    except UNREADABLE as problem:
        if problem is own:
            raise
        raise unreadable(problem, model) from None


def _is_all_thought(completion: Completion) -> bool:
    is_silent = not completion.message.text.strip() and not completion.message.tool_calls
    has_thought = bool(completion.usage.reasoning_tokens or completion.thought)
    return completion.finish_reason == "length" and is_silent and has_thought


def sum_usage(one: Usage, other: Usage) -> Usage:
    """Return the usage of two calls together; a sum with an unknown part is None."""
    counts = {name: (getattr(one, name), getattr(other, name)) for name in Usage.__struct_fields__}
    return Usage(**{name: None if None in pair else sum(pair) for name, pair in counts.items()})


THOUGHT_TOKENS = 4_000
"""Default number of tokens for the thought of a model that thinks."""
MAX_CHARS = 10_000_000
"""Maximum size of a response: a hundred times the longest reply of a model."""
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of the parser for a response outside the protocol."""


def unreadable(problem: Exception, model: str) -> UnreadableAnswer:
    why = str(problem)[:200] if isinstance(problem, ValueError) else "it does not follow the protocol"
    return UnreadableAnswer(f"the server sent what cannot be read: {why}", model)


def wired_tools(request: Request) -> dict[str, str]:
    """Return `wire_names` of the offered tools and of the tools in earlier calls."""
    called = [call.name for message in request.messages if message.tool_calls for call in message.tool_calls]
    return wire_names([*(tool.name for tool in request.tools), *called]) if called or request.tools else {}


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Return tool name -> unique name that providers accept: 1 to 64 letters, digits, `_` and `-`."""
    wired: dict[str, str] = {}
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        # Gemini wants a letter or `_` first; the others do not mind.
        plain = (plain if re.match("[a-zA-Z_]", plain) else f"_{plain}")[:64]
        candidates = itertools.chain([plain], (f"{plain[:60]}_{number}" for number in itertools.count(2)))
        wired[name] = next(candidate for candidate in candidates if candidate not in wired.values())
    return wired


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the counts under OpenAI's or Anthropic's names, unchecked: `wire` drops impossible ones."""
    prompt, output = (usage.get(f"{of}_tokens_details") for of in ("prompt", "completion"))
    return Usage(
        input_tokens=_count(usage, "prompt_tokens", "input_tokens", "promptTokens", "inputTokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens", "completionTokens", "outputTokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
        reasoning_tokens=_count(output, "reasoning_tokens"),
    )


def _count(usage: Any, *names: str) -> Any:
    counts = [usage[name] for name in names if usage.get(name) is not None] if isinstance(usage, Mapping) else []
    count = counts[0] if counts else None
    return int(count) if isinstance(count, str) and count.isdecimal() else count
