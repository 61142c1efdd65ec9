"""A client of one MCP server: a child process with pipes, or a streamable HTTP server.

    server = McpServer(config, seconds=30.0, logs=folder)
    await server.listing()                          # the tools that it lists
    await server.call("now", {"zone": "CET"})       # {"text": "...", "error": False}
    await server.close()

The first request starts the server, and so does the first request after its end. Every failure to get a result raises a
ToolError that a model can read. Errors that the server itself reports are results.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import ToolError, needs
from agentlab.tools.mcp import launch
from agentlab.tools.mcp.answers import to_text_result, truncate_result
from agentlab.tools.mcp.config import ServerConfig, expand_variables
from agentlab.tools.mcp.listing import MAX_TOOLS, plain
from agentlab.tools.mcp.repairs import RepairedStream

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)
Rows = list[dict[str, Any]]
"""A listing: name, description and schema of each tool."""
MAX_PROGRESS_MESSAGES = 20
"""Progress messages that are stored with a result."""
_SUBSCRIBE_SECONDS = 2.0
"""Seconds in which a server must accept a subscription to changes of its tools."""
_MAX_LOG_BYTES = 1_000_000
"""Size at which a log file ends; the next start overwrites a full one."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Memory limit of a server process."""
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""Variables that a process inherits beside the few of the SDK. API keys are not among them."""


class McpServer:
    """One server. `seconds` limits connecting and each call; `logs` is the folder for the process's standard error."""

    def __init__(self, config: ServerConfig, *, seconds: float, logs: Path) -> None:
        self.config = config
        self.name = config.name
        self._seconds = seconds
        self._log_file = logs / f"{re.sub(r'[^A-Za-z0-9.-]', '_', config.name)}.log"
        self._connection: _Connection | None = None
        self._modes = ["auto", "legacy"]
        """Handshakes to try: a server that ends at the newer one is started again with the older one."""
        self._ending: set[asyncio.Task[None]] = set()

    async def listing(self) -> Rows:
        """Return the tools that the server lists; raise ToolError if it cannot be reached."""
        async with self._request("tools/list") as connection:
            return await connection.listing()

    @property
    def problems(self) -> list[str]:
        """The reasons why the last listing is not whole."""
        return [] if self._connection is None else [f"{self.name}: {each}" for each in self._connection.problems]

    def differs_from(self, stored: Rows | None) -> bool:
        """Return True if a connected server lists other tools than `stored`."""
        return self._connection is not None and self._connection.differs_from(stored)

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """Return the `text` of the server's result and if it is an `error`; raise ToolError if there is none.

        Each progress message goes to `on_progress` at once. `progress` of the result holds the first ones and the last.
        """
        lines: list[str] = []

        async def on_message(progress: float, total: float | None, message: str | None) -> None:
            line = f"{progress:g}{f'/{total:g}' if total else ''} {plain(message or '', 200)}".strip()
            on_progress(line)
            lines[MAX_PROGRESS_MESSAGES - 1 :] = [line]

        try:
            async with self._request(tool) as connection:
                result = await connection.call(tool, arguments, on_message)
        except _SessionLost:
            # The server has rejected the call without running it.
            async with self._request(tool) as connection:
                result = await connection.call(tool, arguments, on_message)
        return {**result, "progress": lines} if lines else result

    async def close(self) -> None:
        """Stop the server and wait for its end."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None
        await asyncio.gather(*self._ending)

    @contextlib.asynccontextmanager
    async def _request(self, name: str) -> AsyncIterator[_Connection]:
        """Yield the connection for at most `seconds`; convert a failure into a ToolError that starts with `name`."""
        connection, server = await self._connected(), f"the MCP server {self.name}"
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        with connection.in_use():
            try:
                async with asyncio.timeout(self._seconds):
                    yield connection
                return
            except TimeoutError:
                connection.retire()
                problem = f"{server} did not answer within {self._seconds:g} seconds"
            except MCPError as error:
                problem = f"{server} failed: {plain(error.message, 300)}"
                if connection.has_lost_session(error.message):
                    connection.retire()
                    raise _SessionLost(f"{name}: {server} has forgotten the session") from None
                if error.code == CONNECTION_CLOSED:
                    connection.retire()
                    problem = f"{server} ended before it answered; it is started again for the next call"
            except Exception as failure:
                log.debug("%s: %s", self.name, name, exc_info=True)
                problem = f"the answer of {server} cannot be used ({type(failure).__name__})"
        raise ToolError(f"{name}: {problem}")

    async def _connected(self) -> _Connection:
        if self._connection is None or self._connection.is_closed:
            with needs("MCP servers", "mcp"):
                import mcp  # noqa: F401
            if self._connection is not None:
                self._connection.end()
            self._connection = _Connection(self.config, self._seconds, self._log_file, self._modes)
            self._ending.add(self._connection.task)
            self._connection.task.add_done_callback(self._ending.discard)
        connection = self._connection
        await asyncio.shield(connection.client)
        return connection


class _SessionLost(ToolError):
    """A restarted HTTP server does not know the session any more."""


class _Connection:
    """One connection, from a start of the server to its end.

    The same task must enter and leave the SDK's client, because the client's cancel scopes belong to a task.
    """

    def __init__(self, config: ServerConfig, seconds: float, log_file: Path, modes: list[str]) -> None:
        self.problems: list[str] = []
        self._statuses: list[int] = []
        """The status of each HTTP response."""
        self._modes = modes
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        """The client of the started server, or a ToolError with the reason why it did not start."""
        self._stream: Any = None
        self._rows: Rows | None = None
        self._has_changed = False
        """True once the server has reported that its list of tools has changed."""
        self._n_calls = 0
        self._is_retired = False
        self._is_ended = False
        self._process_output: Any = None
        """The stream of the process's output."""
        # An empty context, because the task outlives the conversation that starts it.
        self.task = asyncio.create_task(self._run(config, seconds, log_file), context=contextvars.Context())

    @property
    def is_closed(self) -> bool:
        """True if the next call needs a new connection: this one is retired, or its process has closed its output."""
        closed = self._process_output is not None and not self._process_output.statistics().open_send_streams
        return self._is_retired or self.task.done() or closed

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        self._n_calls += 1
        try:
            yield
        finally:
            self._n_calls -= 1
            if self._is_retired and not self._n_calls:
                self.end()

    def retire(self) -> None:
        """Accept no more calls; running calls of other conversations may still finish."""
        self._is_retired = True

    def end(self) -> None:
        # Cancel only once: a second cancellation would interrupt the cleanup.
        if not self._is_ended:
            self._is_ended = True
            self.task.cancel()

    async def call(self, tool: str, arguments: dict[str, Any], on_message: Any) -> dict[str, Any]:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            return to_text_result(await self.client.result().call_tool(tool, arguments, progress_callback=on_message))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self.has_lost_session(error.message):
                raise
            return {"text": truncate_result(plain(error.message)), "error": True}

    def has_lost_session(self, message: str) -> bool:
        return bool(self._statuses) and self._statuses[-1] in (400, 404) and "session" in message.lower()

    async def listing(self) -> Rows:
        if self._rows is None or self._has_changed:
            self._has_changed = False
            self._rows = await self._list_tools(self.client.result())
        return self._rows

    async def _list_tools(self, client: Client) -> Rows:
        """Return the tools that the server lists, at most MAX_TOOLS + 1; the last one shows that there are too many."""
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        self._stream.listed.clear()
        self.problems = []
        cursors: set[str] = set()
        cursor: str | None = None
        try:
            while len(self._stream.listed) <= MAX_TOOLS:
                cursor = (await client.list_tools(cursor=cursor)).next_cursor
                if not cursor:
                    break
                if cursor in cursors:
                    self.problems = ["its listing repeats a page, and ends there"]
                    break
                cursors.add(cursor)
        except MCPError as error:
            if _is_end(error) or not (cursors or error.code == METHOD_NOT_FOUND):
                raise
            self.problems = [f"its listing is not whole: {plain(error.message, 200)}"]
        return [_row(tool) for tool in self._stream.listed[: MAX_TOOLS + 1]]

    def differs_from(self, stored: Rows | None) -> bool:
        return self._has_changed or self._rows not in (None, stored)

    async def _on_message(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        self._has_changed |= isinstance(message, ToolListChangedNotification)

    async def _run(self, config: ServerConfig, seconds: float, log_file: Path) -> None:
        from mcp import Client

        # The SDK would log a traceback for a broken server; the ToolError reports the failure instead.
        sdk_log = logging.getLogger("mcp")
        sdk_log.setLevel(sdk_log.level or logging.CRITICAL)
        statuses = self._statuses
        limit = asyncio.timeout(seconds)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with limit:
                    transport = _http(config, seconds, statuses) if config.url else _process(config, log_file)
                    streams = await stack.enter_async_context(transport)
                    self._process_output = None if config.url else streams[0]
                    self._stream = RepairedStream(streams[0])
                    client = Client(
                        contextlib.nullcontext((self._stream, streams[1])),
                        cache=None,
                        message_handler=self._on_message,
                        mode=self._modes[0],
                    )
                    await stack.enter_async_context(client)
                    # Servers of protocols after 2025-11-25 report a changed list only to subscribers.
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                            await stack.enter_async_context(client.listen(tools_list_changed=True))
                    self._rows = await self._list_tools(client)
                self.client.set_result(client)
                await asyncio.Event().wait()
        except (asyncio.CancelledError, BaseExceptionGroup, Exception) as failure:
            log.debug("%s ended", config.name, exc_info=True)
            if not self.client.done() and config.command and self._modes[0] == "auto" and _is_end(failure):
                del self._modes[0]
                await self._run(config, seconds, log_file)
            if not self.client.done():
                reason = _reason(failure, f"it ended; see {log_file}" if config.command else "", statuses)
                reason = f"no answer within {seconds:g} seconds" if limit.expired() else reason
                self.client.set_exception(ToolError(f"the MCP server {config.name} cannot be reached ({reason})"))
                # Read the exception, or asyncio logs it if no caller waits any more.
                self.client.exception()


@contextlib.asynccontextmanager
async def _process(config: ServerConfig, log_file: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server's process and yield its streams; at the end the SDK stops it and its children."""
    from mcp import StdioServerParameters, stdio_client

    inherited = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    assert config.command is not None, "a server without a command has a url"
    command = expand_variables(config.command, "command")
    command = str(config.folder / command) if os.sep in command else command
    arguments = [expand_variables(value, "args") for value in config.args]
    env = inherited | {name: expand_variables(value, name).strip() for name, value in config.env.items()}
    if shutil.which(command, path=env.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-S", launch.__file__, str(MAX_MEMORY_BYTES), command, *arguments],
        env=env,
        cwd=config.folder,
    )
    read_end, write_end = os.pipe()
    threading.Thread(target=_copy_to_log, args=(read_end, log_file), name="agentlab-mcp-log", daemon=True).start()
    with os.fdopen(write_end, "w", encoding="utf-8") as errors:
        async with stdio_client(parameters, errlog=errors) as streams:
            yield streams


def _copy_to_log(read_end: int, file: Path) -> None:
    """Copy the pipe to `file` until the pipe ends; drop the bytes beyond _MAX_LOG_BYTES."""
    with os.fdopen(read_end, "rb", buffering=0) as pipe, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            is_full = file.exists() and file.stat().st_size > _MAX_LOG_BYTES
            output = stack.enter_context(file.open("wb" if is_full else "ab", buffering=0))
            while piece := pipe.read(65536):
                output.write(piece[: max(0, _MAX_LOG_BYTES + 1 - output.tell())])
        while pipe.read(65536):
            pass


@contextlib.asynccontextmanager
async def _http(config: ServerConfig, seconds: float, statuses: list[int]) -> AsyncIterator[tuple[Any, Any]]:
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


def _row(tool: Any) -> dict[str, Any]:
    """Return the stored fields of a listed tool."""
    listed = tool if isinstance(tool, dict) else {}
    row = {key: listed.get(key) for key in ("name", "description", "inputSchema")}
    execution = listed.get("execution")
    needs_tasks = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    return row | {"execution": {"taskSupport": "required"}} if needs_tasks else row


def _root(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _is_end(failure: BaseException) -> bool:
    """Return True if the server has ended instead of answering."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    root = _root(failure)
    return isinstance(root, MCPError) and root.code == CONNECTION_CLOSED


def _reason(failure: BaseException, ended: str, statuses: list[int]) -> str:
    """Return the reason of a failed start, without messages of libraries that may quote a header with its key."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
    from pydantic import ValidationError

    failure = _root(failure)
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
            return f"{plain(' '.join(failure.message.split()), 200)}{status}"
        case ValidationError():
            return "what it says does not follow the protocol"
        case OSError() if failure.strerror:
            return f"{failure.filename or type(failure).__name__}: {failure.strerror}"
    return type(failure).__name__
