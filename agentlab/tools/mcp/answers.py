"""What an MCP server answers, as text that a model can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_RESULT_CHARS = 100_000
"""Characters of a result that are kept."""


def to_text_result(result: CallToolResult) -> dict[str, Any]:
    """A result as text: words, then structured content that the words do not give already; the rest is only named."""
    parts = [_part(block) for block in result.content]
    words = [block.text for block in result.content if block.type == "text"]
    if result.structured_content is not None and not _is_said(words, result.structured_content):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return {"text": cut("\n".join(parts)), "error": result.is_error}


def _part(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource_link":
            return f"(a link to {block.name}: {block.uri})"
        case "resource" if hasattr(block.resource, "text"):
            return f"{block.resource.uri}:\n{block.resource.text}"
        case "resource":
            kind, data, what = block.resource.mime_type or "of unknown type", block.resource.blob, block.resource.uri
        case _:
            kind, data, what = block.mime_type, block.data, block.type
    return f"({what}, {kind}, {len(data) * 3 // 4:,} bytes, not shown)"


def _is_said(words: list[str], content: Any) -> bool:
    """Whether text blocks hold `content` already: as JSON, or wrapped as the SDK wraps what is no object."""
    read = []
    for text in words:
        try:
            read.append(json.loads(text))
        except (ValueError, RecursionError):
            read.append(text)
    forms = [content]
    if isinstance(content, dict) and set(content) == {"result"}:
        forms.append(content["result"])
    return any(form in (words, read) or [form] in (words, read) for form in forms)


def cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    size = f"{len(text):,} characters, the first {MAX_RESULT_CHARS:,} are shown"
    return f"{text[:MAX_RESULT_CHARS]}\n(cut: the result has {size})"
