"""Client of one MCP server: a child process with pipes, or a streamable HTTP server.

    server = McpServer(config, seconds=30.0, logs=folder)
    await server.listing()                                   # the tools that it lists
    await server.call("now", {"zone": "CET"}, session)       # {"text": "...", "error": False}
    await server.close()

The first request starts the server, and so does the first request after its end. Every failure to get a result raises a
ToolError that a model can read. Errors that the server itself reports are results.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import needs
from agentlab.core.protocols import ToolContext
from agentlab.tools.mcp.answers import SessionLost
from agentlab.tools.mcp.config import ServerConfig

if TYPE_CHECKING:
    from mcp import Client

    from agentlab.tools.mcp.connection import Connection, Rows


class McpServer:
    """One server. `logs` is the folder for the process's standard error.

    `seconds` limits a start and each call, unless the server's entry has a `timeout`. A progress message starts the
    limit of its call again.
    """

    def __init__(self, config: ServerConfig, *, seconds: float, logs: Path) -> None:
        self.config = config
        self.name = config.name
        self._seconds = config.timeout or seconds
        self._log_file = logs / f"{re.sub(r'[^A-Za-z0-9.-]', '_', config.name)}.log"
        self._connection: Connection | None = None
        self._modes = ["auto", "legacy"]
        """Handshakes to try: a server that ends at the newer one is started again with the older one."""
        self._ending: set[asyncio.Task[None]] = set()

    async def listing(self) -> tuple[Rows, list[str]]:
        """Return the tools that the server lists, and the reasons why the listing is not whole.

        Raises ToolError if the server cannot be reached.
        """
        return await (await self._connected()).listing(self._seconds)

    def differs_from(self, stored: Rows | None) -> bool:
        """Return True if a connected server lists other tools than `stored`."""
        return self._connection is not None and self._connection.differs_from(stored)

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """Return the `text` of the server's result and if it is an `error`; raise ToolError if there is none.

        `context` gets each progress message at once. `progress` of the result holds the first ones and the last.
        """
        try:
            return await (await self._connected()).call(tool, arguments, context, self._seconds)
        except SessionLost:
            # The server has rejected the call without running it.
            return await (await self._connected()).call(tool, arguments, context, self._seconds)

    async def request(self, purpose: str) -> AbstractAsyncContextManager[Client]:
        """Return a context with the SDK's client for a request that calls no tool.

        The context raises ToolError, which begins with `purpose`.
        """
        return (await self._connected()).request(purpose, self._seconds)

    async def close(self) -> None:
        """Stop the server and wait for its end."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None
        await asyncio.gather(*self._ending)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed:
            with needs("MCP servers", "mcp"):
                import mcp  # noqa: F401 - our module may be loaded already

                from agentlab.tools.mcp.connection import Connection
            if self._connection is not None:
                self._connection.end()
            self._connection = Connection(self.config, self._seconds, self._log_file, self._modes)
            self._ending.add(self._connection.task)
            self._connection.task.add_done_callback(self._ending.discard)
        connection = self._connection
        await asyncio.shield(connection.client)
        return connection
