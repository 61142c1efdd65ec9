"""One MCP server: a process of our own that is spoken to over its pipes, or a streamable HTTP server elsewhere.

    server = McpServer(config, seconds=30.0, logs=folder, on_listing=compare)
    await server.listing()                          # the tools as it lists them
    await server.call("now", {"zone": "CET"})       # {"text": "...", "error": False}
    await server.close()

It is started when it is first needed and again whenever it is gone; when it says that its list of tools has changed, it
is asked for the new one, before the next answer of its is handed on. Everything that goes wrong is a ToolError, to be
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agentlab.core.errors import MissingExtra, ToolError
from agentlab.tools.mcp import launch
from agentlab.tools.mcp.answers import answer_of, cut
from agentlab.tools.mcp.config import ServerConfig, expanded
from agentlab.tools.mcp.listing import MOST, plain

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger(__name__)
OnListing = Callable[[list[Any]], Awaitable[str]]
"""Told what a server lists; says in a line what that changes, "" for nothing."""
MOST_SAID = 20
"""Messages on the way to an answer that are kept."""
_LISTENING = 2.0
"""Seconds in which a server has to say that it will tell of changes."""
_CHANGES = 100
"""How often a server that goes on saying that its list has changed is asked for it."""
_LOG = 1_000_000
"""Bytes of a log file: past them nothing is written, and the next start begins it anew."""
MOST_MEMORY = 4 * 2**30
"""Bytes that a process may take."""
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""What a process learns of our environment beside the little that the SDK hands on; keys are not its business."""


class McpServer:
    """`seconds` limits connecting, and each call; `on_listing` is told what the server lists at first and whenever that
    changes."""

    def __init__(self, config: ServerConfig, *, seconds: float, logs: Path, on_listing: OnListing) -> None:
        self.config = config
        self.name = config.name
        self._seconds = seconds
        self._logs = logs
        self._on_listing = on_listing
        self._connection: _Connection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def listing(self) -> list[dict[str, Any]]:
        """The tools as the server lists them; raises ToolError where it cannot be reached."""
        connection, _ = await self._connected()
        return connection.listing

    async def call(
        self, tool: str, arguments: dict[str, Any], tell: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """What the server answers, as `text` and whether it is an `error`; raises ToolError where it does not.

        What it says on the way goes to `tell` at once; its first words and its last are under `progress`, too.
        """
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST

        said: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            line = f"{progress:g}{f'/{total:g}' if total else ''} {plain(message or '', 200)}".strip()
            if len(said) < MOST_SAID:
                log.debug("%s: %s: %s", self.name, tool, line)
            tell(line)
            if len(said) == MOST_SAID:
                said.pop()
            said.append(line)

        connection, client = await self._connected()
        with connection.in_use():
            try:
                async with asyncio.timeout(self._seconds):
                    answer = answer_of(await client.call_tool(tool, arguments, progress_callback=hear))
                said += await connection.changes()
                return {**answer, "progress": said} if said else answer
            except TimeoutError:
                connection.give_up()
                raise ToolError(
                    f"{tool}: the MCP server {self.name} did not answer within {self._seconds:g} seconds"
                ) from None
            except MCPError as error:
                if error.code == INVALID_PARAMS:
                    return {"text": cut(plain(error.message)), "error": True}
                if error.code == CONNECTION_CLOSED or (error.code == INVALID_REQUEST and "ession" in error.message):
                    # The latter is how a server over HTTP says that it was started anew.
                    connection.give_up()
                    raise ToolError(
                        f"{tool}: the MCP server {self.name} ended before it answered; it is started again for the"
                        " next call"
                    ) from None
                raise ToolError(f"{tool}: the MCP server {self.name} failed: {plain(error.message, 300)}") from None
            except Exception as failure:
                log.debug("%s: %s", self.name, tool, exc_info=True)
                raise ToolError(
                    f"{tool}: the answer of the MCP server {self.name} cannot be used ({type(failure).__name__})"
                ) from None

    async def close(self) -> None:
        """End the server, and wait until it is gone."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None
        await asyncio.gather(*self._ending)

    async def _connected(self) -> tuple[_Connection, Client]:
        if self._connection is None or self._connection.is_over:
            try:
                import mcp  # noqa: F401
            except ImportError:
                raise MissingExtra("MCP servers", "mcp") from None
            if self._connection is not None:
                self._connection.give_up()
            self._connection = _Connection(self.config, self._seconds, self._logs, self._on_listing)
            self._ending.add(self._connection.task)
            self._connection.task.add_done_callback(self._ending.discard)
        connection = self._connection
        return connection, await asyncio.shield(connection.client)


class _Connection:
    """From one start of a server to its end.

    One task enters the SDK's client and leaves it: the cancel scopes inside must not change hands.
    """

    def __init__(self, config: ServerConfig, seconds: float, logs: Path, on_listing: OnListing) -> None:
        self.listing: list[dict[str, Any]] = []
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        """Once the server is there; or a ToolError that says why it is not."""
        self._config = config
        self._seconds = seconds
        self._log_file = logs / f"{re.sub(r'[^A-Za-z0-9.-]', '_', config.name)}.log"
        self._on_listing = on_listing
        self._listens = asyncio.Event()
        """Set once the server tells us of changes, or is known not to be one that has to be asked to."""
        self._stale = False
        self._asking_again: asyncio.Task[None] | None = None
        self._asked_again = 0
        self._changes: list[str] = []
        self._calls = 0
        self._is_given_up = False
        self._over = asyncio.Event()
        self._status = 0
        """Of the last answer over HTTP."""
        self._from_process: Any = None
        """The stream of what a process writes."""
        # A context of its own, because it outlives the call of the conversation that happened to start it.
        self.task = asyncio.create_task(self._live(), context=contextvars.Context())

    @property
    def is_over(self) -> bool:
        """Whether the next call needs another: this one was given up, or its process has closed its output."""
        closed = self._from_process is not None and not self._from_process.statistics().open_send_streams
        return self._is_given_up or self._over.is_set() or self.task.done() or closed

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._is_given_up:
                self.give_up()

    def give_up(self) -> None:
        """Take no more calls; those of other conversations may still be answered, within their own time."""
        self._is_given_up = True
        if not self._calls:
            self._over.set()

    def end(self) -> None:
        if not self.client.done() and not self._over.is_set():
            # Once: a second cancellation would hit it while it cleans up.
            self.task.cancel()
        self._over.set()

    async def _live(self) -> None:
        from mcp import Client

        # Its words about a broken server would be tracebacks on our standard error; ours stand in the ToolError.
        theirs = logging.getLogger("mcp")
        theirs.setLevel(theirs.level or logging.CRITICAL)
        transport = self._http(self._config.url) if self._config.url else self._process()
        limit = asyncio.timeout(self._seconds)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with limit:
                    client = await stack.enter_async_context(Client(transport, cache=None, message_handler=self._hear))
                    self.listing = await _listed_by(client)
                if change := await self._on_listing(self.listing):
                    self._changes.append(change)
                listening = asyncio.create_task(self._listen(client))
                try:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._listens.wait(), _LISTENING)
                    self.client.set_result(client)
                    await self._over.wait()
                finally:
                    beside = [task for task in (listening, self._asking_again) if task is not None]
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
        except asyncio.CancelledError:
            self._fail("it was closed")
        except Exception as failure:
            log.debug("%s ended", self._config.name, exc_info=True)
            self._fail(f"no answer within {self._seconds:g} seconds" if limit.expired() else self._reason(failure))

    async def changes(self) -> list[str]:
        """What changed in the server's list since this was asked last, a line each; it is then taken over."""
        # What came before an answer is on its way through the SDK's own tasks.
        for _ in range(5):
            await asyncio.sleep(0)
        if self._asking_again is not None:
            await asyncio.wait([self._asking_again], timeout=self._seconds)
        changes, self._changes = self._changes, []
        return changes

    async def _hear(self, message: Any) -> None:
        """Servers until 2025-11-25 say it without being asked."""
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._list_again()

    async def _listen(self, client: Client) -> None:
        """Later ones say it to those who listen."""
        from mcp.client.subscriptions import SubscriptionLost

        for _ in range(_CHANGES):
            try:
                async with client.listen(tools_list_changed=True) as events:
                    self._listens.set()
                    async for _ in events:
                        self._list_again()
                break
            except SubscriptionLost:
                # What was said meanwhile is not said again.
                self._list_again()
            except Exception:
                log.debug("%s says nothing of changes", self._config.name, exc_info=True)
                break
        self._listens.set()

    def _list_again(self) -> None:
        self._stale = True
        if self._asking_again is None or self._asking_again.done():
            self._asking_again = asyncio.create_task(self._ask_again(), context=contextvars.Context())

    async def _ask_again(self) -> None:
        while self._stale and self._asked_again < _CHANGES:
            self._stale, self._asked_again = False, self._asked_again + 1
            try:
                client = await asyncio.shield(self.client)
                async with asyncio.timeout(self._seconds):
                    self.listing = await _listed_by(client)
                if change := await self._on_listing(self.listing):
                    self._changes.append(change)
            except Exception:
                log.debug("%s does not list its tools again", self._config.name, exc_info=True)

    def _fail(self, reason: str) -> None:
        if not self.client.done():
            self.client.set_exception(ToolError(f"the MCP server {self._config.name} cannot be reached ({reason})"))
            # It may be that nobody waits for it any more.
            self.client.exception()

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[tuple[Any, Any]]:
        """The pipes of a new process, which the SDK ends together with what it started."""
        from mcp import StdioServerParameters, stdio_client

        config = self._config
        handed_on = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        assert config.command is not None, "this is how a server with a command is reached"
        command = str(config.folder / config.command) if os.sep in config.command else config.command
        env = handed_on | {name: expanded(value, name) for name, value in config.env.items()}
        if shutil.which(command, path=env.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
        described = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-S", launch.__file__, str(MOST_MEMORY), command, *config.args],
            env=env,
            cwd=config.folder,
        )
        with self._opened_log() as errors:
            async with stdio_client(described, errlog=errors) as (reading, writing):
                self._from_process = reading
                yield reading, writing

    @contextlib.contextmanager
    def _opened_log(self) -> Iterator[TextIO]:
        """What a process writes its errors to: of them, `_LOG` bytes get into the file, and the rest nowhere."""
        reading, writing = os.pipe()
        threading.Thread(target=_keep, args=(reading, self._log_file), name="agentlab-mcp-log", daemon=True).start()
        with os.fdopen(writing, "w", encoding="utf-8") as errors:
            yield errors

    @contextlib.asynccontextmanager
    async def _http(self, url: str) -> AsyncIterator[tuple[Any, Any]]:
        """The SDK follows redirects within the origin of the address only, so none leads into our network."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def remember(response: httpx2.Response) -> None:
            self._status = response.status_code

        headers = {name: expanded(value, name) for name, value in self._config.headers.items()}
        # Calls are limited one by one; the stream that tells of changes may be silent for as long as it likes.
        patience = httpx2.Timeout(self._seconds + 1.0, read=None)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=patience, event_hooks={"response": [remember]}) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    def _reason(self, failure: BaseException) -> str:
        """What is said of a failed start, without the words of those who might quote a header with its key."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        match failure:
            case ToolError():
                return str(failure)
            case MCPError() if failure.code == CONNECTION_CLOSED and self._config.command:
                return f"it ended; see {self._log_file}"
            case MCPError():
                status = f" (HTTP {self._status})" if self._status >= 400 else ""
                return f"{plain(' '.join(failure.message.split()), 200)}{status}"
            case ValidationError():
                return "what it says does not follow the protocol"
            case OSError() if failure.strerror:
                return f"{failure.filename or type(failure).__name__}: {failure.strerror}"
        return type(failure).__name__


def _keep(reading: int, file: Path) -> None:
    """Write to `file` what comes from the pipe, until it ends."""
    with os.fdopen(reading, "rb", buffering=0) as pipe, contextlib.ExitStack() as opened:
        kept, size = None, 0
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            is_long = file.exists() and file.stat().st_size > _LOG
            kept = opened.enter_context(file.open("wb" if is_long else "ab", buffering=0))
            size = kept.tell()
        while piece := pipe.read(65536):
            if kept is not None and size <= _LOG:
                with contextlib.suppress(OSError):
                    size += kept.write(piece[: _LOG - size + 1])


async def _listed_by(client: Client) -> list[dict[str, Any]]:
    """The tools of a server as it lists them; of more than `MOST` one too many, so that it can be told."""
    page = await client.list_tools()
    tools = page.tools
    while page.next_cursor is not None and len(tools) <= MOST:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return [{"name": t.name, "description": t.description, "inputSchema": t.input_schema} for t in tools[: MOST + 1]]
