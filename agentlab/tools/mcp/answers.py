"""Conversion of an MCP server's result, resource or prompt into text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agentlab.core.errors import ToolError

MAX_RESULT_CHARS = 100_000
"""Length to which a result is truncated."""
_FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class SessionLost(ToolError):
    """Answer of a restarted HTTP server, which does not know the session any more."""


def to_text_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return `text` and `error` of a tool's result, which may break the protocol.

    The text lists the content blocks in order; media blocks are only named. Structured content follows if no text block
    contains it. The first protocol sends one value, `toolResult`.
    """
    content, structured, value = map(result.get, ("content", "structuredContent", "toolResult"))
    if content is None and value is not None:
        content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    parts = [part for block in blocks if (part := _render_block(block)) is not None]
    texts = [_render_block(block) or "" for block in blocks if isinstance(block, dict) and "text" in block]
    if structured is not None and not _contains(texts, structured):
        value = structured if isinstance(structured, dict) else {"result": structured}
        parts.append(json.dumps(value, ensure_ascii=False))
    is_error = str(result.get("isError") or "").lower() not in ("", "false", "0", "no", "none", "null")
    return {"text": truncate_result("\n".join(parts) or "(the result is empty)"), "error": is_error}


def to_resource_text(result: Mapping[str, Any]) -> str:
    blocks = [{"type": "resource", "resource": each} for each in result["contents"]]
    return truncate_result("\n".join(map(str, map(_render_block, blocks))))


def to_prompt_text(result: Mapping[str, Any]) -> str:
    """Return the messages of a prompt, each with its role."""
    lines = [f"{each['role']}: {_render_block(each['content'])}" for each in result["messages"]]
    return truncate_result("\n".join(lines))


def _render_block(block: Any) -> str | None:
    """Return a block as text; None for a text block without text."""
    match block:
        case str(text) | {"text": str(text)}:
            return text
        case {"type": "text", **fields}:
            value = fields.get("text")
            return None if value is None else json.dumps(value, ensure_ascii=False)
        case {"type": "resource_link", "uri": uri, "name": name}:
            return f"(a link to {name}: {uri})"
        case {"type": "resource", "resource": {"uri": uri, "text": str(text)}}:
            return f"{uri}:\n{text}"
        case {"type": "resource", "resource": {"uri": name, "blob": str(data), **media}}:
            pass
        case {"type": name, "data": str(data), **media}:
            pass
        case _:
            kind = block.get("type") if isinstance(block, dict) else type(block).__name__
            return f"({kind}, a block that cannot be read)"
    return f"({name}, {media.get('mimeType') or 'of unknown type'}, {len(data) * 3 // 4:,} bytes, not shown)"


def _contains(texts: list[str], content: Any) -> bool:
    """Return True if the text blocks contain `content` as JSON, also in a fence or without a wrapper of one value."""
    values = []
    for text in texts:
        for part in (text, *_FENCE.findall(text)):
            try:
                values.append(json.loads(part))
            except (ValueError, RecursionError):
                values.append(part)
    forms = [content]
    if isinstance(content, dict) and len(content) == 1:
        forms += content.values()
    return any(form in (texts, values, *texts, *values) for form in forms)


def truncate_result(text: str) -> str:
    """Return at most MAX_RESULT_CHARS characters of `text`, with a note if it is truncated."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    size = f"{len(text):,} characters, the first {MAX_RESULT_CHARS:,} are shown"
    return f"{text[:MAX_RESULT_CHARS]}\n(cut: the result has {size})"
