"""Conversion of an MCP server's result into text for a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_RESULT_CHARS = 100_000
"""Length to which a result is truncated."""


def to_text_result(result: CallToolResult) -> dict[str, Any]:
    """Return `text` and `error` of a result.

    The text lists the content blocks in order; media blocks are only named. Structured content follows if no text block
    contains it.
    """
    parts = [_render_block(block) for block in result.content]
    texts = [block.text for block in result.content if block.type == "text"]
    if result.structured_content is not None and not _contains(texts, result.structured_content):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return {"text": truncate_result("\n".join(parts) or "(the result is empty)"), "error": result.is_error}


def _render_block(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource_link":
            return f"(a link to {block.name}: {block.uri})"
        case "resource" if hasattr(block.resource, "text"):
            return f"{block.resource.uri}:\n{block.resource.text}"
        case "resource":
            kind, data, name = block.resource.mime_type or "of unknown type", block.resource.blob, block.resource.uri
        case _:
            kind, data, name = block.mime_type, block.data, block.type
    return f"({name}, {kind}, {len(data) * 3 // 4:,} bytes, not shown)"


def _contains(texts: list[str], content: Any) -> bool:
    """Return True if the text blocks contain `content` as JSON, also without the key of a wrapper of one value."""
    values = []
    for text in texts:
        try:
            values.append(json.loads(text))
        except (ValueError, RecursionError):
            values.append(text)
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
