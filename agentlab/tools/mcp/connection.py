"""Connection to one MCP server by the SDK, from a start of the server to its end.

It imports the SDK, which takes a second: `client` imports it when the first request starts the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, ElicitResult, ToolListChangedNotification
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agentlab.core.errors import ToolError
from agentlab.core.protocols import ToolContext
from agentlab.tools.mcp.answers import SessionLost, to_text_result, truncate_result
from agentlab.tools.mcp.config import ServerConfig
from agentlab.tools.mcp.forms import ask_form
from agentlab.tools.mcp.listing import MAX_TOOLS, plain
from agentlab.tools.mcp.repairs import RepairedStream
from agentlab.tools.mcp.transports import connect_http, start_process

log = logging.getLogger(__name__)
Rows = list[dict[str, Any]]
"""A listing: name, description and schema of each tool."""
MAX_PROGRESS_MESSAGES = 20
"""Progress messages that are stored with a result."""
_MAX_EXTENSION = 20
"""Maximum seconds of a call that reports progress, in time limits."""
_SUBSCRIBE_SECONDS = 2.0
"""Seconds in which a server must accept a subscription to changes of its tools."""
_LOST_SESSION = re.compile(r"session|^Server returned an error response$", re.IGNORECASE)
"""Messages of a request that a restarted server refuses; the SDK writes the second one for an error without an id."""


@dataclass(eq=False)
class Call:
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


class Connection:
    """One connection, from a start of the server to its end.

    The same task must enter and leave the SDK's client, because the client's cancel scopes belong to a task.
    """

    def __init__(self, config: ServerConfig, seconds: float, log_file: Path, modes: list[str]) -> None:
        self._config, self._modes = config, modes
        self._statuses: list[int] = []
        """The status of each HTTP response."""
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        """The client of the started server, or a ToolError with the reason why it did not start."""
        self._stream: Any = None
        self._rows: Rows | None = None
        self._problems: list[str] = []
        """The reasons why the last listing is not whole."""
        self._has_changed = False
        """True once the server has reported that its list of tools has changed."""
        self._running: list[Call | None] = []
        self._is_retired = False
        """True if it accepts no more calls; running calls of other conversations may still finish."""
        self._is_ended = False
        # An empty context, because the task outlives the conversation that starts it.
        self.task = asyncio.create_task(self._run(seconds, log_file), context=contextvars.Context())

    @property
    def is_closed(self) -> bool:
        """True if the next call needs a new connection: this one is retired, or its process has closed its output."""
        is_process = self._config.url is None and self._stream is not None
        closed = is_process and not self._stream.statistics().open_send_streams
        return self._is_retired or self.task.done() or closed

    def end(self) -> None:
        # Cancel only once: a second cancellation would interrupt the cleanup.
        if not self._is_ended:
            self._is_ended = True
            self.task.cancel()

    @contextlib.asynccontextmanager
    async def request(self, name: str, seconds: float, call: Call | None = None) -> AsyncIterator[Client]:
        """Yield the client for at most `seconds`; convert a failure into a ToolError that starts with `name`."""
        server = f"the MCP server {self._config.name}"
        self._running.append(call)
        try:
            async with asyncio.timeout(seconds) as limit:
                if call is not None:
                    call.start(limit, seconds)
                yield self.client.result()
            return
        except TimeoutError:
            self._is_retired = True
            problem = f"{server} did not answer within {seconds:g} seconds"
        except MCPError as error:
            problem = f"{server} failed: {plain(error.message, 300)}"
            if self._has_lost_session(error.message):
                self._is_retired = True
                raise SessionLost(f"{name}: {server} has forgotten the session") from None
            if error.code == CONNECTION_CLOSED:
                self._is_retired = True
                problem = f"{server} ended before it answered; it is started again for the next call"
        except Exception as failure:
            log.debug("%s: %s", self._config.name, name, exc_info=True)
            problem = f"the answer of {server} cannot be used ({type(failure).__name__})"
        finally:
            self._running.remove(call)
            if self._is_retired and not self._running:
                self.end()
        raise ToolError(f"{name}: {problem}")

    async def call(
        self, tool: str, arguments: dict[str, Any], context: ToolContext | None, seconds: float
    ) -> dict[str, Any]:
        call = Call(tool, self._config.name, context)
        async with self.request(tool, seconds, call) as client:
            try:
                result: Any = await client.call_tool(tool, arguments, progress_callback=call.on_progress)
                answer = to_text_result(json.loads(result.content[0].text))
            except MCPError as error:
                if error.code == CONNECTION_CLOSED or self._has_lost_session(error.message):
                    raise
                answer = {"text": truncate_result(plain(error.message)), "error": True}
        return {**answer, "progress": call.lines} if call.lines else answer

    def _has_lost_session(self, message: str) -> bool:
        return bool(self._statuses) and self._statuses[-1] in (400, 404) and bool(_LOST_SESSION.search(message))

    async def listing(self, seconds: float) -> tuple[Rows, list[str]]:
        async with self.request("tools/list", seconds) as client:
            if self._rows is None or self._has_changed:
                self._has_changed = False
                self._rows = await self._list_tools(client)
            return self._rows, [f"{self._config.name}: {each}" for each in self._problems]

    async def _list_tools(self, client: Client) -> Rows:
        """Return the tools that the server lists, at most MAX_TOOLS + 1; the last one shows that there are too many."""
        self._stream.listed.clear()
        self._problems = []
        cursors: set[str] = set()
        cursor: str | None = None
        try:
            while len(self._stream.listed) <= MAX_TOOLS:
                cursor = (await client.list_tools(cursor=cursor)).next_cursor
                if not cursor:
                    break
                if cursor in cursors:
                    self._problems = ["its listing repeats a page, and ends there"]
                    break
                cursors.add(cursor)
        except MCPError as error:
            if has_ended(error) or not (cursors or error.code == METHOD_NOT_FOUND):
                raise
            self._problems = [f"its listing is not whole: {plain(error.message, 200)}"]
        return [_row(tool) for tool in self._stream.listed[: MAX_TOOLS + 1]]

    def differs_from(self, stored: Rows | None) -> bool:
        return self._has_changed or self._rows not in (None, stored)

    async def _on_message(self, message: Any) -> None:
        self._has_changed |= isinstance(message, ToolListChangedNotification)

    async def _on_question(self, context: Any, params: Any) -> Any:
        """Ask the user of the newest call, as the protocol does not name the call; decline without a user."""
        call = next((call for call in reversed(self._running) if call is not None), None)
        question = f"{params.message} {getattr(params, 'url', '')}"
        answer = None if call is None else await call.ask(question, getattr(params, "requested_schema", {}))
        return ElicitResult(action="decline" if answer is None else "accept", content=answer or None)

    async def _run(self, seconds: float, log_file: Path) -> None:
        config, statuses = self._config, self._statuses
        # The SDK would log a traceback for a broken server; the ToolError reports the failure instead.
        sdk_log = logging.getLogger("mcp")
        sdk_log.setLevel(sdk_log.level or logging.CRITICAL)
        transport = connect_http(config, seconds, statuses) if config.url else start_process(config, log_file)
        limit = asyncio.timeout(seconds)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with limit:
                    streams = await stack.enter_async_context(transport)
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
                await self._run(seconds, log_file)
            if not self.client.done():
                reason = reason_of(failure, f"it ended; see {log_file}" if config.command else "", statuses)
                reason = f"no answer within {seconds:g} seconds" if limit.expired() else reason
                self.client.set_exception(ToolError(f"the MCP server {config.name} cannot be reached ({reason})"))
                # Read the exception, or asyncio logs it if no caller waits any more.
                self.client.exception()


def _find_root(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def has_ended(failure: BaseException) -> bool:
    """Return True if the server has ended instead of answering."""
    root = _find_root(failure)
    return isinstance(root, MCPError) and root.code == CONNECTION_CLOSED


def reason_of(failure: BaseException, ended: str, statuses: list[int]) -> str:
    """Return the reason of a failed start, without messages of libraries that may quote a header with its key."""
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


def _row(tool: Any) -> dict[str, Any]:
    """Return the stored fields of a listed tool."""
    listed = tool if isinstance(tool, dict) else {}
    row = {key: listed.get(key) for key in ("name", "description", "inputSchema")}
    execution = listed.get("execution")
    needs_tasks = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    return row | {"execution": {"taskSupport": "required"}} if needs_tasks else row
