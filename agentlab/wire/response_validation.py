"""Validates the completion that a provider returns; neither the provider nor its server is trusted."""

from __future__ import annotations

import json
from typing import Any, get_args

from msgspec.structs import replace

from agentlab.core.errors import ServerFault
from agentlab.core.messages import Completion, FinishReason, Message, ToolCall, Usage
from agentlab.core.strict_json import join_surrogates, parse_json
from agentlab.core.thoughts import split_thought

MAX_TOKENS = 10**9
"""Tokens of one call; a larger count is a mistake."""
MAX_CALLS, MAX_ARGUMENT_CHARS = 1_000, 1_000_000
"""Tool calls of one completion, and characters of their arguments, which every later request repeats."""
_COUNTS = Usage.__struct_fields__
_FINISH_REASONS = get_args(FinishReason)
_STOPPED = {"content_filter": "a content filter stopped the reply", "other": "the server stopped the reply"}


def validate_completion(completion: Any, model: str) -> tuple[Completion, str]:
    """Return the completion without impossible token counts, and a text that lists these counts.

    A count is an integer from 0 to `MAX_TOKENS`, and a part is not larger than its whole; any other count becomes
    None. Arguments that are not JSON become text. Raises ServerFault for an invalid completion.
    """
    message = getattr(completion, "message", None)
    if not isinstance(completion, Completion) or not isinstance(message, Message) or not isinstance(message.text, str):
        raise ServerFault("the answer is no text", model)
    usage, impossible = _usage(completion.usage)
    if message.tool_calls or message.role != "agent":
        if len(message.tool_calls) > MAX_CALLS:
            raise ServerFault(f"the answer calls {len(message.tool_calls)} tools, more than {MAX_CALLS}", model)
        calls = [_call(call, model) for call in message.tool_calls]
        if sum(size for _, size in calls) > MAX_ARGUMENT_CHARS:
            raise ServerFault(f"the arguments of tools have more than {MAX_ARGUMENT_CHARS:,} characters", model)
        message = replace(message, role="agent", tool_calls=tuple(call for call, _ in calls))
    text, thought = split_thought(join_surrogates(message.text), is_split=bool(completion.thought))
    if text != message.text:
        message = replace(message, text=text)
    thought = completion.thought or thought
    reason = completion.finish_reason if completion.finish_reason in _FINISH_REASONS else "other"
    stopped = completion.stopped or _STOPPED.get(reason, "")
    if thought and reason == "stop" and not (text or message.tool_calls):
        stopped = "the model only thought, and gave no answer"
    name = completion.model if isinstance(completion.model, str) else model
    return Completion(
        message=message, usage=usage, model=name, finish_reason=reason, thought=thought, stopped=stopped
    ), impossible


def _usage(usage: Any) -> tuple[Usage, str]:
    reported = {name: getattr(usage, name, None) for name in _COUNTS}
    counts = {name: _count(count) for name, count in reported.items()}
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        limit = counts[whole]
        if limit is not None and (counts[part] or 0) > limit:
            counts[part] = None
    impossible = [name for name in reported if reported[name] is not None and counts[name] is None]
    return Usage(**counts), ", ".join(f"{name}: {reported[name]!r:.40}" for name in impossible)


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _call(call: Any, model: str) -> tuple[ToolCall, int]:
    """Return the call and the number of characters of its arguments."""
    if not isinstance(call, ToolCall) or not isinstance(call.id, str) or not isinstance(call.name, str):
        raise ServerFault("the answer calls a tool that has no name", model)
    if call.malformed is not None:
        return replace(call, malformed=join_surrogates(call.malformed)), len(call.malformed)
    try:
        if not isinstance(call.arguments, dict):
            raise TypeError
        given = json.dumps(call.arguments, ensure_ascii=False)
        arguments = parse_json(text := join_surrogates(given))
    except (TypeError, ValueError, RecursionError):
        return replace(call, arguments={}, malformed=(malformed := f"{call.arguments!r:.1000}")), len(malformed)
    return call if text == given else replace(call, arguments=arguments), len(text)
