"""One MCP server: a process of our own that is spoken to over its pipes, or a streamable HTTP server elsewhere.

    server = McpServer(config, seconds=30.0, logs=folder)
    await server.listing()                          # the tools as it lists them
    await server.call("now", {"zone": "CET"})       # {"text": "...", "error": False}
    await server.close()

It is started when it is first needed and again whenever it is gone. Everything that goes wrong is a ToolError, to be
read by a model; what the server itself says of a call, errors included, is an answer.
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
from agentlab.tools.mcp.answers import cut, to_text_result
from agentlab.tools.mcp.config import ServerConfig, expand_variables
from agentlab.tools.mcp.listing import MAX_TOOLS, plain

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)
Rows = list[dict[str, Any]]
"""A listing: name, description and schema of each tool."""
MAX_PROGRESS_MESSAGES = 20
"""Messages on the way to an answer that are kept."""
_LISTENING = 2.0
"""Seconds in which a server has to say that it will tell of changes."""
_LOG = 1_000_000
"""Bytes of a log file: past them nothing is written, and the next start begins it anew."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Bytes that a process may take."""
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""What a process learns of our environment beside the little that the SDK hands on; keys are not its business."""


class McpServer:
    """`seconds` limits connecting, and each call; what a process writes to its standard error is kept in `logs`."""

    def __init__(self, config: ServerConfig, *, seconds: float, logs: Path) -> None:
        self.config = config
        self.name = config.name
        self._seconds = seconds
        self._log_file = logs / f"{re.sub(r'[^A-Za-z0-9.-]', '_', config.name)}.log"
        self._connection: _Connection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def listing(self) -> Rows:
        """The tools as the server lists them; raises ToolError where it cannot be reached."""
        async with self._asking("tools/list") as connection:
            return await connection.listing()

    def differs_from(self, kept: Rows | None) -> bool:
        """True where the server is known to list something else than `kept`."""
        return self._connection is not None and self._connection.differs_from(kept)

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """What the server answers, as `text` and whether it is an `error`; raises ToolError where it does not.

        What it says on the way goes to `on_progress` at once; its first words and its last are under `progress`, too.
        """
        said: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            line = f"{progress:g}{f'/{total:g}' if total else ''} {plain(message or '', 200)}".strip()
            on_progress(line)
            said[MAX_PROGRESS_MESSAGES - 1 :] = [line]

        async with self._asking(tool) as connection:
            answer = await connection.call(tool, arguments, hear)
        return {**answer, "progress": said} if said else answer

    async def close(self) -> None:
        """End the server, and wait until it is gone."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None
        await asyncio.gather(*self._ending)

    @contextlib.asynccontextmanager
    async def _asking(self, what: str) -> AsyncIterator[_Connection]:
        """The server, for as long as it may take to answer; what goes wrong is a ToolError that names `what`."""
        connection, server = await self._connected(), f"the MCP server {self.name}"
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

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
                # The latter is how a server over HTTP says that it was started anew.
                if error.code == CONNECTION_CLOSED or (error.code == INVALID_REQUEST and "ession" in error.message):
                    connection.retire()
                    problem = f"{server} ended before it answered; it is started again for the next call"
            except Exception as failure:
                log.debug("%s: %s", self.name, what, exc_info=True)
                problem = f"the answer of {server} cannot be used ({type(failure).__name__})"
        raise ToolError(f"{what}: {problem}")

    async def _connected(self) -> _Connection:
        if self._connection is None or self._connection.is_closed:
            with needs("MCP servers", "mcp"):
                import mcp  # noqa: F401
            if self._connection is not None:
                self._connection.end()
            self._connection = _Connection(self.config, self._seconds, self._log_file)
            self._ending.add(self._connection.task)
            self._connection.task.add_done_callback(self._ending.discard)
        connection = self._connection
        await asyncio.shield(connection.client)
        return connection


class _Connection:
    """From one start of a server to its end.

    One task enters the SDK's client and leaves it: the cancel scopes inside must not change hands.
    """

    def __init__(self, config: ServerConfig, seconds: float, log_file: Path) -> None:
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        """Once the server is there; or a ToolError that says why it is not."""
        self._rows: Rows | None = None
        self._has_news = False
        """True once the server has said that it lists something else by now."""
        self._calls = 0
        self._is_given_up = False
        self._is_ended = False
        self._from_process: Any = None
        """The stream of what a process writes."""
        # A context of its own, because it outlives the call of the conversation that happened to start it.
        self.task = asyncio.create_task(self._run(config, seconds, log_file), context=contextvars.Context())

    @property
    def is_closed(self) -> bool:
        """Whether the next call needs another: this one was given up, or its process has closed its output."""
        closed = self._from_process is not None and not self._from_process.statistics().open_send_streams
        return self._is_given_up or self.task.done() or closed

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._is_given_up and not self._calls:
                self.end()

    def retire(self) -> None:
        """Take no more calls; those of other conversations may still be answered, within their own time."""
        self._is_given_up = True

    def end(self) -> None:
        # Once: a second cancellation would hit it while it cleans up.
        if not self._is_ended:
            self._is_ended = True
            self.task.cancel()

    async def call(self, tool: str, arguments: dict[str, Any], hear: Any) -> dict[str, Any]:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS

        try:
            return to_text_result(await self.client.result().call_tool(tool, arguments, progress_callback=hear))
        except MCPError as error:
            if error.code != INVALID_PARAMS:
                raise
            return {"text": cut(plain(error.message)), "error": True}

    async def listing(self) -> Rows:
        if self._rows is None or self._has_news:
            self._has_news = False
            self._rows = await _listed_by(self.client.result())
        return self._rows

    def differs_from(self, kept: Rows | None) -> bool:
        return self._has_news or self._rows not in (None, kept)

    async def _on_message(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        self._has_news |= isinstance(message, ToolListChangedNotification)

    async def _run(self, config: ServerConfig, seconds: float, log_file: Path) -> None:
        from mcp import Client

        # Its words about a broken server would be tracebacks on our standard error; ours stand in the ToolError.
        theirs = logging.getLogger("mcp")
        theirs.setLevel(theirs.level or logging.CRITICAL)
        statuses: list[int] = []
        limit = asyncio.timeout(seconds)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with limit:
                    transport = _http(config, seconds, statuses) if config.url else _process(config, log_file)
                    streams = await stack.enter_async_context(transport)
                    self._from_process = None if config.url else streams[0]
                    client = Client(contextlib.nullcontext(streams), cache=None, message_handler=self._on_message)
                    await stack.enter_async_context(client)
                    # Servers until 2025-11-25 tell of a changed list unasked, later ones whoever listens.
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(_LISTENING):
                            await stack.enter_async_context(client.listen(tools_list_changed=True))
                    self._rows = await _listed_by(client)
                self.client.set_result(client)
                await asyncio.Event().wait()
        except (asyncio.CancelledError, BaseExceptionGroup, Exception) as failure:
            log.debug("%s ended", config.name, exc_info=True)
            if not self.client.done():
                reason = _reason(failure, f"it ended; see {log_file}" if config.command else "", statuses)
                reason = f"no answer within {seconds:g} seconds" if limit.expired() else reason
                self.client.set_exception(ToolError(f"the MCP server {config.name} cannot be reached ({reason})"))
                # It may be that nobody waits for it any more.
                self.client.exception()


@contextlib.asynccontextmanager
async def _process(config: ServerConfig, log_file: Path) -> AsyncIterator[tuple[Any, Any]]:
    """The pipes of a new process, which the SDK ends together with what it started."""
    from mcp import StdioServerParameters, stdio_client

    handed_on = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    assert config.command is not None, "this is how a server with a command is reached"
    command = str(config.folder / config.command) if os.sep in config.command else config.command
    env = handed_on | {name: expand_variables(value, name) for name, value in config.env.items()}
    if shutil.which(command, path=env.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    described = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-S", launch.__file__, str(MAX_MEMORY_BYTES), command, *config.args],
        env=env,
        cwd=config.folder,
    )
    reading, writing = os.pipe()
    threading.Thread(target=_keep, args=(reading, log_file), name="agentlab-mcp-log", daemon=True).start()
    with os.fdopen(writing, "w", encoding="utf-8") as errors:
        async with stdio_client(described, errlog=errors) as streams:
            yield streams


def _keep(reading: int, file: Path) -> None:
    """Write to `file` what comes from the pipe, until it ends; what it has no room for goes nowhere."""
    with os.fdopen(reading, "rb", buffering=0) as pipe, contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            is_long = file.exists() and file.stat().st_size > _LOG
            kept = opened.enter_context(file.open("wb" if is_long else "ab", buffering=0))
            while piece := pipe.read(65536):
                kept.write(piece[: max(0, _LOG + 1 - kept.tell())])
        while pipe.read(65536):
            pass


@contextlib.asynccontextmanager
async def _http(config: ServerConfig, seconds: float, statuses: list[int]) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK follows redirects within the origin of the address only, so none leads into our network.

    The status of each answer is added to `statuses`.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def remember(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    headers = {name: expand_variables(value, name) for name, value in config.headers.items()}
    # Calls are limited one by one; the stream that tells of changes may be silent for as long as it likes.
    patience = httpx2.Timeout(seconds + 1.0, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=patience, event_hooks={"response": [remember]}) as client,
        streamable_http_client(str(config.url), http_client=client) as streams,
    ):
        yield streams


async def _listed_by(client: Client) -> Rows:
    """The tools of a server as it lists them; of more than `MOST` one too many, so that it can be told."""
    page = await client.list_tools()
    tools = page.tools
    while page.next_cursor is not None and len(tools) <= MAX_TOOLS:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return [
        {"name": t.name, "description": t.description, "inputSchema": t.input_schema} for t in tools[: MAX_TOOLS + 1]
    ]


def _reason(failure: BaseException, ended: str, statuses: list[int]) -> str:
    """What is said of a failed start, without the words of those who might quote a header with its key."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED
    from pydantic import ValidationError

    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    match failure:
        case asyncio.CancelledError():
            return "it was closed"
        case ToolError():
            return str(failure)
        case MCPError() if failure.code == CONNECTION_CLOSED and ended:
            return ended
        case MCPError():
            status = f" (HTTP {statuses[-1]})" if statuses and statuses[-1] >= 400 else ""
            return f"{plain(' '.join(failure.message.split()), 200)}{status}"
        case ValidationError():
            return "what it says does not follow the protocol"
        case OSError() if failure.strerror:
            return f"{failure.filename or type(failure).__name__}: {failure.strerror}"
    return type(failure).__name__
