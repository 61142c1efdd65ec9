"""Connections to MCP servers over streamable HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from agentlab.tools.mcp.config import ServerConfig, expand_variables


@contextlib.asynccontextmanager
async def connect_http(config: ServerConfig, seconds: float, statuses: list[int]) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to an HTTP server and yield its streams; append the status of each response to `statuses`.

    The SDK follows redirects only within the origin of the address, so none leads into the user's network.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def add_status(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    url = expand_variables(str(config.url), "url")
    headers = {name: expand_variables(value, name).strip() for name, value in config.headers.items()}
    # No read timeout: the stream of changes may be silent, and `_request` limits each call.
    timeout = httpx2.Timeout(seconds + 1.0, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [add_status]}) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
