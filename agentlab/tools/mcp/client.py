"""One MCP server: a process of our own that is spoken to over its pipes, or a streamable HTTP server elsewhere.

    server = McpServer(config, seconds=30.0, logs=folder)
    await server.listing()                          # the tools as it lists them, not yet believed
    await server.call("now", {"zone": "CET"})       # {"text": "...", "error": False}
    await server.close()

It is started when it is first needed and again whenever it is gone. Each of its lives is one task, which enters the
client and leaves it: the cancel scopes inside must not change hands. Everything that goes wrong is a ToolError, to be
read by a model; what the server itself says of a call, errors included, is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import MissingExtra, ToolError
from agentlab.tools.mcp.config import ServerConfig
from agentlab.tools.mcp.listing import MOST, plain
from agentlab.tools.mcp.transports import GRACE, Condition, Ended, http, screened, stdio

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

log = logging.getLogger(__name__)
Progress = Callable[[str, str, str], None]
"""Told of server, tool and what the server said of a call under way."""
LONGEST = 100_000
"""Characters of a result that are kept."""
MOST_SAID = 20
"""Messages on the way to an answer that are kept."""
_PAGES = 50


class McpServer:
    """`seconds` limits connecting, and each call; `on_listing` is told what the server lists whenever it is started."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        seconds: float,
        logs: Path,
        on_listing: Callable[[list[Any]], None] = lambda raw: None,
        on_progress: Progress = lambda server, tool, text: None,
    ) -> None:
        self.config = config
        self.name = config.name
        self._seconds = seconds
        self._logs = logs
        self._on_listing = on_listing
        self._on_progress = on_progress
        self._life: _Life | None = None
        self._former: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        """Of the process that runs, if one does."""
        return self._life.condition.pid if self._life is not None and not self._life.is_over else None

    async def listing(self) -> list[Any]:
        """The tools as the server lists them; raises ToolError where it cannot be reached."""
        return (await self._alive()).listing

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the server answers, as `text` and whether it is an `error`; raises ToolError where it does not.

        What it said on the way, if anything, is under `progress`, its first words and its last.
        """
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST

        said: list[str] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            told = f"{progress:g}{f'/{total:g}' if total else ''} {plain(message or '', 200)}".strip()
            log.debug("%s: %s: %s", self.name, tool, told)
            if len(said) == MOST_SAID:
                said.pop()
            said.append(told)
            self._on_progress(self.name, tool, told)

        life = await self._alive()
        assert life.client is not None
        with life.used():
            try:
                async with asyncio.timeout(self._seconds):
                    answer = answer_of(await life.client.call_tool(tool, arguments, progress_callback=tell))
                    return {**answer, "progress": said} if said else answer
            except TimeoutError:
                life.retire()
                raise ToolError(
                    f"{tool}: the MCP server {self.name} did not answer within {self._seconds:g} seconds"
                ) from None
            except MCPError as error:
                if error.code == INVALID_PARAMS:
                    return {"text": _cut(plain(error.message)), "error": True}
                if error.code == CONNECTION_CLOSED or (error.code == INVALID_REQUEST and "ession" in error.message):
                    # The latter is how a server over HTTP says that it was started anew.
                    life.retire()
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
        if self._life is not None:
            self._life.end()
            self._former.add(self._life.task)
        self._life = None
        if self._former:
            _, slow = await asyncio.wait(self._former, timeout=4 * GRACE + 1.0)
            for task in slow:
                task.cancel()
            if slow:
                await asyncio.wait(slow, timeout=4 * GRACE + 1.0)
        self._former.clear()

    async def _alive(self) -> _Life:
        if self._life is None or self._life.is_over:
            try:
                import mcp  # noqa: F401
            except ImportError:
                raise MissingExtra("MCP servers", "mcp") from None
            if self._life is not None:
                self._former = {task for task in self._former if not task.done()} | {self._life.task}
            self._life = _Life(self.config, self._seconds, self._logs, self._on_listing)
        life = self._life
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(life.ready)
        except TimeoutError:
            life.abandon()
            raise ToolError(
                f"the MCP server {self.name} cannot be reached (no answer within {self._seconds:g} seconds)"
            ) from None
        if life.failure:
            raise ToolError(f"the MCP server {self.name} cannot be reached ({life.failure})")
        return life


class _Life:
    """From one start of a server to its end."""

    def __init__(
        self, config: ServerConfig, seconds: float, logs: Path, on_listing: Callable[[list[Any]], None]
    ) -> None:
        self.client: Client | None = None
        self.listing: list[Any] = []
        self.failure = ""
        self.condition = Condition()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the client is there, or the attempt has failed."""
        self._config = config
        self._seconds = seconds
        self._logs = logs
        self._on_listing = on_listing
        self._calls = 0
        self._retired = False
        # A context of its own, because it outlives the call of the conversation that happened to start it.
        self.task = asyncio.create_task(self._live(), context=contextvars.Context())

    @property
    def is_over(self) -> bool:
        """Whether the next call needs another."""
        return self._retired or self.condition.over.is_set() or self.task.done()

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._retired and not self._calls:
                self.end()

    def retire(self) -> None:
        """Take no more calls; those of other conversations may still be answered, within their own time."""
        self._retired = self.condition.hung = True

    def end(self) -> None:
        if not self.ready.done() and not self.condition.over.is_set():
            # Once: a second cancellation would hit it while it cleans up.
            self.task.cancel()
        self.condition.over.set()

    def abandon(self) -> None:
        """Give up a start that takes too long."""
        self.retire()
        self.end()

    async def _live(self) -> None:
        try:
            from mcp import Client

            # Its words about a broken server would be tracebacks on our standard error; ours stand in the ToolError.
            theirs = logging.getLogger("mcp")
            theirs.setLevel(theirs.level or logging.CRITICAL)
            seen: list[Any] = []
            if self._config.url:
                transport = http(self._config, self._seconds, self.condition)
            else:
                transport = stdio(self._config, self._logs, self.condition)
            async with Client(screened(transport, seen), cache=None) as client:
                cursor = None
                for _ in range(_PAGES):
                    cursor = (await client.list_tools(cursor=cursor)).next_cursor
                    if cursor is None or len(seen) > MOST:
                        break
                self.listing = list(seen)
                self._on_listing(self.listing)
                self.client = client
                self.ready.set_result(None)
                await self.condition.over.wait()
        except asyncio.CancelledError:
            self.failure = "it was closed"
        except Exception as failure:
            log.debug("%s ended", self._config.name, exc_info=True)
            status = f" (HTTP {self.condition.status})" if self.condition.status >= 400 else ""
            self.failure = f"{_reason(failure)}{status}"
        finally:
            self.condition.over.set()
            if not self.ready.done():
                self.ready.set_result(None)


def answer_of(result: CallToolResult) -> dict[str, Any]:
    """A result as text: words, then structured content that the words do not give already; the rest is only named."""
    parts = [_part(block) for block in result.content]
    words = [block.text for block in result.content if block.type == "text"]
    if result.structured_content is not None and not _says(words, result.structured_content):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return {"text": _cut("\n".join(parts)), "error": result.is_error}


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


def _says(words: list[str], content: Any) -> bool:
    """Whether text blocks hold `content` already: as JSON, or wrapped as the SDK wraps what is no object."""
    read = []
    for text in words:
        try:
            read.append(json.loads(text))
        except (ValueError, RecursionError):
            read.append(text)
    told = [content]
    if isinstance(content, dict) and set(content) == {"result"}:
        told.append(content["result"])
    return any(known in (words, read) or [known] in (words, read) for known in told)


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n(cut: the result has {len(text):,} characters, the first {LONGEST:,} are shown)"


def _reason(failure: BaseException) -> str:
    """What is said of a failed start, without the words of those who might quote a header with its key."""
    from mcp import MCPError
    from pydantic import ValidationError

    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    match failure:
        case ToolError() | Ended():
            return str(failure)
        case MCPError():
            return plain(failure.message, 200)
        case ValidationError():
            return "what it says does not follow the protocol"
        case OSError() if failure.strerror:
            return f"{failure.filename or type(failure).__name__}: {failure.strerror}"
    return type(failure).__name__
