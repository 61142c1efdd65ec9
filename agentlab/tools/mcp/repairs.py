"""Repairs messages of servers before the SDK validates them, so that one invalid part does not lose the others.

The SDK rejects a whole listing for one tool without a schema, and a whole result for one block of an unknown type. It
also mistakes some error codes of a server for the end of the connection, and waits forever for an unreadable response.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

RESULT_KEYS = {"content", "structuredContent", "isError", "toolResult"}
"""Parts of a tool's result, which the stream passes on as one text block of JSON."""
SERVER_ERROR = -32099
"""Code that replaces an error code of a server which the SDK reserves for its own errors."""


class RepairedStream:
    """The read stream of a transport; `listed` collects the unchanged tools of all pages of a listing."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.listed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            yield self._repaired(item)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> Any:
        return await self._stream.__aexit__(*reason)

    def _repaired(self, item: Any) -> Any:
        from mcp.shared.message import SessionMessage
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, ErrorData, JSONRPCError, JSONRPCResponse

        if isinstance(item, Exception):
            row = _unreadable_answer(item)
            if row is None:
                return item
            error = ErrorData(code=SERVER_ERROR, message=_words(row.get("error")))
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=row["id"], error=error))
        message = item.message
        if isinstance(message, JSONRPCError) and message.error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
            message.error.code = SERVER_ERROR
        elif isinstance(message, JSONRPCResponse):
            result = message.result
            if isinstance(result.get("tools"), list):
                self.listed += result["tools"]
                result["tools"] = [*_readable_tools(result["tools"])]
            elif RESULT_KEYS & result.keys():
                raw = json.dumps({key: result.pop(key) for key in RESULT_KEYS & result.keys()})
                message.result = {**result, "content": [{"type": "text", "text": raw}]}
        return item


def _unreadable_answer(failure: Exception) -> dict[str, Any] | None:
    """Return the row of a response that the SDK cannot read; None if the row is no response."""
    from pydantic import ValidationError

    for part in failure.errors() if isinstance(failure, ValidationError) else ():
        row = part["input"]
        if isinstance(row, dict) and isinstance(row.get("id"), (int, str)) and "method" not in row:
            return row
    return None


def _words(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error or "it answered nothing")
    return str(error.get("message") or f"an error with code {error.get('code')}")


def _readable_tools(rows: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield each tool with the fields that the SDK needs; without an output schema it accepts any result."""
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            schema = row.get("inputSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            properties = properties if isinstance(properties, dict) else {}
            valid = {name: part for name, part in properties.items() if isinstance(part, (dict, bool))}
            yield {"name": row["name"], "inputSchema": {"type": "object", "properties": valid}}
