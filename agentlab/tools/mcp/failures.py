"""Reasons why an MCP server did not start, as one line."""

from __future__ import annotations

import asyncio

from agentlab.core.errors import ToolError
from agentlab.tools.mcp.listing import plain


def _find_root(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def has_ended(failure: BaseException) -> bool:
    """Return True if the server has ended instead of answering."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    root = _find_root(failure)
    return isinstance(root, MCPError) and root.code == CONNECTION_CLOSED


def reason_of(failure: BaseException, ended: str, statuses: list[int]) -> str:
    """Return the reason of a failed start, without messages of libraries that may quote a header with its key."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
    from pydantic import ValidationError

    failure = _find_root(failure)
    match failure:
        case asyncio.CancelledError():
            return "it was closed"
        case ToolError():
            return str(failure)
        case MCPError() if failure.code == CONNECTION_CLOSED and ended:
            return ended
        case RuntimeError() if "protocol version" in str(failure):
            ours = f"{HANDSHAKE_PROTOCOL_VERSIONS[0]} to {MODERN_PROTOCOL_VERSIONS[-1]}"
            return f"it speaks version {str(failure).split()[-1]} of the protocol, agentlab {ours}"
        case MCPError():
            status = f" (HTTP {statuses[-1]})" if statuses and statuses[-1] >= 400 else ""
            if statuses and statuses[-1] in (404, 405):
                status += "; an address of the older transport, sse, cannot be used: ask the server for streamable-http"
            return f"{plain(' '.join(failure.message.split()), 200)}{status}"
        case ValidationError():
            return "what it says does not follow the protocol"
        case OSError() if failure.strerror:
            return f"{failure.filename or type(failure).__name__}: {failure.strerror}"
    return type(failure).__name__
