"""Writes conversations for the strictest servers of OpenAI's protocol, with pure functions.

    write_messages(request.messages, wired_tools(request))    # [{"role": "system", "content": ...}, ...]

System text comes first and once. User and assistant alternate, and each call is followed by its result. No message is
empty, and the assistant's is not the last. `extra["openai"]` holds the fields that a server wants back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.core.strict_json import join_surrogates

OPENING, CONTINUATION, ACKNOWLEDGEMENT = "Begin.", "Go on.", "I see."
"""Fillers of user and assistant: before a greeting, after a reply, and between a tool result and a message."""
INTERRUPTED = "Error: the call was interrupted before it had a result."
MAX_ID_CHARS = 40
MAX_MALFORMED_CHARS = 1_000

Row = dict[str, Any]
"""Message in the form of the protocol."""


def write_messages(messages: Iterable[Message], names: Mapping[str, str]) -> list[Row]:
    """Return the messages in the form of the protocol; `names` maps tools to the names that the server accepts."""
    all_messages = list(messages)
    system = "\n\n".join(message.text for message in all_messages if message.role == "system" and message.text.strip())
    rows: list[Row] = []
    for row in _paired(all_messages, names):
        last = rows[-1]["role"] if rows else None
        if row["role"] == last and last != "tool":
            # Only the second of two messages of one role may have calls.
            texts = [each["content"] for each in (rows[-1], row) if (each["content"] or "").strip()]
            rows[-1] |= row | {"content": "\n\n".join(texts) or rows[-1]["content"]}
            continue
        if row["role"] == "user" and last == "tool":
            rows.append({"role": "assistant", "content": ACKNOWLEDGEMENT})
        rows.append(row)
    if not rows or rows[0]["role"] != "user":
        rows.insert(0, {"role": "user", "content": OPENING})
    if rows[-1]["role"] == "assistant":
        rows.append({"role": "user", "content": CONTINUATION})
    return [{"role": "system", "content": join_surrogates(system)}, *rows] if system else rows


def _paired(messages: Iterable[Message], names: Mapping[str, str]) -> Iterable[Row]:
    """Return all messages but the system text, each call before its result; drop results without a call."""
    rows: list[Row] = []
    waiting: dict[str, tuple[ToolCall, Row]] = {}
    for message in messages:
        text = join_surrogates(message.text)
        if message.role == "user":
            rows.append({"role": "user", "content": text})
        elif message.role == "tool" and (pair := waiting.pop(message.tool_call_id or "", None)):
            call, result = pair
            result["content"] = text
            if call.malformed:
                written = join_surrogates(call.malformed[:MAX_MALFORMED_CHARS])
                result["content"] += f"\n\nThe arguments read: {written}"
        elif message.role == "agent" and message.tool_calls:
            calls = [_call(call, names) for call in message.tool_calls]
            extra = message.extra.get("openai") or {}
            rows.append({**extra, "role": "assistant", "content": text or None, "tool_calls": calls})
            for call in message.tool_calls:
                result = {"role": "tool", "content": INTERRUPTED, "tool_call_id": wire_id(call.id)}
                waiting[call.id] = call, result
                rows.append(result)
        elif message.role == "agent" and text.strip():
            rows.append({"role": "assistant", "content": text})
    return rows


def _call(call: ToolCall, names: Mapping[str, str]) -> Row:
    arguments = {} if call.malformed is not None else call.arguments
    written = join_surrogates(json.dumps(arguments, ensure_ascii=False))
    function = {"name": names.get(call.name, call.name), "arguments": written}
    extra = {"extra_content": call.extra["openai"]} if call.extra.get("openai") else {}
    return {"id": wire_id(call.id), "type": "function", "function": function, **extra}


def wire_id(call_id: str) -> str:
    """Return the id of a call, or its hash if it is longer than servers accept."""
    return call_id if len(call_id) <= MAX_ID_CHARS else hashlib.sha256(call_id.encode()).hexdigest()[:32]


def shorten_ids(rows: Iterable[Row]) -> list[Row]:
    """Return the messages with ids of tool calls that have 9 letters and digits, the only ones that Mistral takes."""

    def short(call_id: str) -> str:
        is_short = re.fullmatch("[a-zA-Z0-9]{9}", call_id)
        return call_id if is_short else hashlib.sha256(call_id.encode()).hexdigest()[:9]

    shortened: list[Row] = []
    for row in rows:
        changed = {"tool_call_id": short(row["tool_call_id"])} if "tool_call_id" in row else {}
        calls = [{**call, "id": short(call["id"])} for call in row.get("tool_calls", ())]
        shortened.append(row | changed | ({"tool_calls": calls} if calls else {}))
    return shortened


def write_tools(request: Request, names: Mapping[str, str]) -> Row:
    """Return `tools` and `tool_choice`. Without offered tools, list those called earlier; some servers need them."""
    called = {call.name: "" for message in request.messages for call in message.tool_calls}
    offered = request.tools or tuple(
        ToolSpec(name=name, description="", parameters={"type": "object", "properties": {}}) for name in called
    )
    if not offered:
        return {}
    choice: Any = request.tool_choice if request.tools else "none"
    if choice not in ("auto", "required", "none"):
        choice = {"type": "function", "function": {"name": names.get(choice)}}
    functions = [
        {"name": names[tool.name], "description": tool.description, "parameters": tool.parameters} for tool in offered
    ]
    return {"tools": [{"type": "function", "function": each} for each in functions], "tool_choice": choice}
