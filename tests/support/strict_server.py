"""The rules of the strictest servers of OpenAI's protocol together: the first broken rule, in the server's words."""

from __future__ import annotations

import json
from typing import Any

from support.fake_openai import Response

KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def refusal(body: dict[str, Any], own: set[str] = frozenset()) -> str | None:  # type: ignore[assignment]
    """Return the first broken rule, or None; `own` are additional message keys that this server accepts."""
    messages = body["messages"]
    system = [at for at, message in enumerate(messages) if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    if system not in ([], [0]):
        return "System message must be at the beginning."
    if not rest or rest[0]["role"] != "user":
        return "First message after the system message must be of the user"
    if rest[-1]["role"] not in ("user", "tool"):
        return "Expected last role User or Tool"
    return next((problem for at in range(len(rest)) if (problem := _message(rest, at, own))), None) or _tools(
        body, rest
    )


def _message(messages: list[dict[str, Any]], at: int, own: set[str]) -> str | None:
    message, before = messages[at], messages[at - 1] if at else {"role": "system"}
    role, calls = message["role"], message.get("tool_calls")
    if more := set(message) - KEYS[role] - own:
        return f"property {more} is unsupported"
    if role == before["role"] != "tool":
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    if role == "user" and before["role"] == "tool":
        return "Unexpected role 'user' after role 'tool'"
    if role == "assistant" and not calls and not (message["content"] or "").strip():
        return "text content blocks must contain non-whitespace text"
    for position, call in enumerate(calls or ()):
        results = messages[at + 1 + position : at + 2 + position]
        if not results or results[0].get("tool_call_id") not in {one["id"] for one in calls}:
            return "An assistant message with 'tool_calls' must be followed by tool messages"
        if len(call["id"]) > 40:
            return "string too long. Expected maximum length 40"
        if not isinstance(json.loads(call["function"]["arguments"], parse_constant=lambda name: 1 / 0), dict):
            return "Can only get item pairs from a mapping."
    if role == "tool" and before["role"] not in ("assistant", "tool"):
        return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
    return None


def _tools(body: dict[str, Any], messages: list[dict[str, Any]]) -> str | None:
    if any(message["role"] == "tool" for message in messages) and not body.get("tools"):
        return "The `tools` param must be set when the history holds tool calls"
    return None


def strictly(response: Response, body: dict[str, Any], **rules: Any) -> Response:
    """Return `response` to a request that keeps the rules, otherwise HTTP 400."""
    problem = refusal(body, **rules)
    return response if problem is None else {"status": 400, "message": problem}
