"""A client of one MCP server: a child process with pipes, or a streamable HTTP server.

    server = McpServer(config, seconds=30.0, logs=folder)
    await server.listing()                                   # the tools that it lists
    await server.call("now", {"zone": "CET"}, session)       # {"text": "...", "error": False}
    await server.close()

The first request starts the server, and so does the first request after its end. Every failure to get a result raises a
ToolError that a model can read. Errors that the server itself reports are results.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import json
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import ToolError, needs
from agentlab.core.protocols import ToolContext
from agentlab.tools.mcp import launch
from agentlab.tools.mcp.answers import to_text_result, truncate_result
from agentlab.tools.mcp.config import ServerConfig, expand_variables
from agentlab.tools.mcp.failures import has_ended, reason_of
from agentlab.tools.mcp.forms import ask_form
from agentlab.tools.mcp.listing import MAX_TOOLS, plain
from agentlab.tools.mcp.remote import connect_http
from agentlab.tools.mcp.repairs import RepairedStream

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)
Rows = list[dict[str, Any]]
"""A listing: name, description and schema of each tool."""
MAX_PROGRESS_MESSAGES = 20
"""Progress messages that are stored with a result."""
_MAX_EXTENSION = 20
"""Maximum seconds of a call that reports progress, in time limits."""
_SUBSCRIBE_SECONDS = 2.0
"""Seconds in which a server must accept a subscription to changes of its tools."""


_MAX_LOG_BYTES = 1_000_000
"""Size at which a log file ends; the next start overwrites a full one."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Memory limit of a server process."""
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""Variables that a process inherits beside the few of the SDK. API keys are not among them."""


_LOST_SESSION = re.compile(r"session|^Server returned an error response$", re.IGNORECASE)
"""Messages of a request that a restarted server refuses; the SDK writes the second one for an error without an id."""


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

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """Return the `text` of the server's result and if it is an `error`; raise ToolError if there is none.

        `context` gets each progress message at once. `progress` of the result holds the first ones and the last.
        """
        call = _Call(tool, self.name, context)
        try:
            async with self._request(tool, call) as connection:
                result = await connection.call(tool, arguments, call.on_progress)
        except _SessionLost:
            # The server has rejected the call without running it.
            async with self._request(tool, call) as connection:
                result = await connection.call(tool, arguments, call.on_progress)
        return {**result, "progress": call.lines} if call.lines else result

    @contextlib.asynccontextmanager
    async def client(self, purpose: str) -> AsyncIterator[Client]:
        """Yield the SDK's client for one request that calls no tool; raise ToolError, which begins with `purpose`."""
        async with self._request(purpose) as connection:
            yield connection.client.result()

    async def close(self) -> None:
        """Stop the server and wait for its end."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None
        await asyncio.gather(*self._ending)

    @contextlib.asynccontextmanager
    async def _request(self, name: str, call: _Call | None = None) -> AsyncIterator[_Connection]:
        """Yield the connection for at most `seconds`; convert a failure into a ToolError that starts with `name`."""
        connection, server = await self._connected(), f"the MCP server {self.name}"
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        with connection.in_use(call):
            try:
                async with asyncio.timeout(self._seconds) as limit:
                    if call is not None:
                        call.start(limit, self._seconds)
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


@dataclass(eq=False)
class _Call:
    """A running call of a tool: its progress messages, its time limit, and the session with its user."""

    tool: str
    server: str
    context: ToolContext | None
    lines: list[str] = field(default_factory=list)

    def start(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._end = asyncio.get_running_loop().time() + seconds * _MAX_EXTENSION

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        line = f"{progress:g}{f'/{total:g}' if total else ''} {plain(message or '', 200)}".strip()
        self.lines[MAX_PROGRESS_MESSAGES - 1 :] = [line]
        if self.context is not None:
            self.context.report(self.tool, line)
        if not self._limit.expired():
            self._limit.reschedule(min(asyncio.get_running_loop().time() + self._seconds, self._end))

    async def ask(self, question: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the user's answer to a question of the server; meanwhile the call has no time limit."""
        if self.context is None:
            return None
        self._limit.reschedule(None)
        answer = await ask_form(self.context, f"the MCP server {self.server} asks: {question}", schema)
        self.start(self._limit, self._seconds)
        self._limit.reschedule(self._end)
        return answer


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
        self._running: list[_Call | None] = []
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
    def in_use(self, call: _Call | None) -> Iterator[None]:
        self._running.append(call)
        try:
            yield
        finally:
            self._running.remove(call)
            if self._is_retired and not self._running:
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
            result: Any = await self.client.result().call_tool(tool, arguments, progress_callback=on_message)
            return to_text_result(json.loads(result.content[0].text))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self.has_lost_session(error.message):
                raise
            return {"text": truncate_result(plain(error.message)), "error": True}

    def has_lost_session(self, message: str) -> bool:
        return bool(self._statuses) and self._statuses[-1] in (400, 404) and bool(_LOST_SESSION.search(message))

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
            if has_ended(error) or not (cursors or error.code == METHOD_NOT_FOUND):
                raise
            self.problems = [f"its listing is not whole: {plain(error.message, 200)}"]
        return [_row(tool) for tool in self._stream.listed[: MAX_TOOLS + 1]]

    def differs_from(self, stored: Rows | None) -> bool:
        return self._has_changed or self._rows not in (None, stored)

    async def _on_message(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        self._has_changed |= isinstance(message, ToolListChangedNotification)

    async def _on_question(self, context: Any, params: Any) -> Any:
        """Ask the user of the newest call, as the protocol does not name the call; decline without a user."""
        from mcp_types import ElicitResult

        call = next((call for call in reversed(self._running) if call is not None), None)
        question = f"{params.message} {getattr(params, 'url', '')}"
        answer = None if call is None else await call.ask(question, getattr(params, "requested_schema", {}))
        return ElicitResult(action="decline" if answer is None else "accept", content=answer or None)

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
                    transport = connect_http(config, seconds, statuses) if config.url else _process(config, log_file)
                    streams = await stack.enter_async_context(transport)
                    self._process_output = None if config.url else streams[0]
                    self._stream = RepairedStream(streams[0])
                    client = Client(
                        contextlib.nullcontext((self._stream, streams[1])),
                        cache=None,
                        message_handler=self._on_message,
                        elicitation_callback=self._on_question,
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
            if not self.client.done() and config.command and self._modes[0] == "auto" and has_ended(failure):
                del self._modes[0]
                await self._run(config, seconds, log_file)
            if not self.client.done():
                reason = reason_of(failure, f"it ended; see {log_file}" if config.command else "", statuses)
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


def _row(tool: Any) -> dict[str, Any]:
    """Return the stored fields of a listed tool."""
    listed = tool if isinstance(tool, dict) else {}
    row = {key: listed.get(key) for key in ("name", "description", "inputSchema")}
    execution = listed.get("execution")
    needs_tasks = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    return row | {"execution": {"taskSupport": "required"}} if needs_tasks else row
