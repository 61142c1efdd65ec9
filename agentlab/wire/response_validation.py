"""Validates the answer that an adapter returns, no matter who wrote the adapter or runs the server."""

from __future__ import annotations

import json
from typing import Any, get_args

from msgspec.structs import replace

from agentlab.core.errors import ServerFault
from agentlab.core.messages import Completion, FinishReason, Message, ToolCall, Usage
from agentlab.core.strict_json import parse_json

MAX_TOKENS = 10**9
"""Tokens of one call; a larger count is a mistake."""
MAX_CALLS, MAX_ARGUMENT_CHARS = 1_000, 1_000_000
"""Tool calls of one answer, and characters of their arguments, which every later request repeats."""
_COUNTS = Usage.__struct_fields__
_FINISH_REASONS = get_args(FinishReason)


def validate_completion(answer: Any, model: str) -> tuple[Completion, str]:
    """The completion without what cannot be, and which token counts those were; raises ServerFault for no answer.

    A count is whole, not negative and not past `MAX_TOKENS`; what is part of another count is not more than that.
    Otherwise it is not known. Arguments that are not JSON become the text that they are.
    """
    message = getattr(answer, "message", None)
    if not isinstance(answer, Completion) or not isinstance(message, Message) or not isinstance(message.text, str):
        raise ServerFault("the answer is no text", model)
    usage, odd = _usage(answer.usage)
    if message.tool_calls or message.role != "agent":
        if len(message.tool_calls) > MAX_CALLS:
            raise ServerFault(f"the answer calls {len(message.tool_calls)} tools, more than anybody runs", model)
        read = [_call(call, model) for call in message.tool_calls]
        if sum(size for _, size in read) > MAX_ARGUMENT_CHARS:
            raise ServerFault(f"the arguments of tools have more than {MAX_ARGUMENT_CHARS:,} characters", model)
        message = replace(message, role="agent", tool_calls=tuple(call for call, _ in read))
    return Completion(
        message=message,
        usage=usage,
        model=answer.model if isinstance(answer.model, str) else model,
        finish_reason=answer.finish_reason if answer.finish_reason in _FINISH_REASONS else "stop",
    ), odd


def _usage(given: Any) -> tuple[Usage, str]:
    told = {name: getattr(given, name, None) for name in _COUNTS}
    counts = {name: _count(count) for name, count in told.items()}
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        most = counts[whole]
        if most is not None and (counts[part] or 0) > most:
            counts[part] = None
    odd = ", ".join(f"{name}: {told[name]!r:.40}" for name in told if told[name] is not None and counts[name] is None)
    return Usage(**counts), odd


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _call(call: Any, model: str) -> tuple[ToolCall, int]:
    """The call, and how many characters its arguments have."""
    if not isinstance(call, ToolCall) or not isinstance(call.id, str) or not isinstance(call.name, str):
        raise ServerFault("the answer calls a tool that has no name", model)
    if call.malformed is not None:
        return call, len(call.malformed)
    try:
        if not isinstance(call.arguments, dict):
            raise TypeError
        parse_json(text := json.dumps(call.arguments))
    except (TypeError, ValueError, RecursionError):
        return replace(call, arguments={}, malformed=(odd := f"{call.arguments!r:.1000}")), len(odd)
    return call, len(text)
