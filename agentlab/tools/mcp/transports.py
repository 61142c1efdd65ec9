"""How an MCP server is reached: the pipes of a process of our own, or streamable HTTP; and how both are kept in bounds.

A process is the leader of a group that ends with it, knows little of our environment and writes its errors to a file of
its own. Messages are limited in size, and listings are taken out before the SDK reads them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from agentlab.tools.mcp.config import ServerConfig, expanded
from agentlab.tools.mcp.listing import MOST, Refused, sound_schema

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)
Streams = tuple[Any, Any]
GRACE = 1.0
"""Seconds a process is given to end once its input is closed, and again once it is told to."""
_MESSAGE = 32_000_000
"""Bytes of one message of a server."""
_LOG = 1_000_000
"""Bytes from which a log file is begun anew."""
_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""What a server learns of our environment; keys of models are not its business."""
_GROUPS: set[int] = set()
"""Process groups that live, for an interpreter that ends without closing them."""


@dataclass
class Condition:
    """Of one life of a server, as its transport and its user both need to know it."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the transport once nothing more can come, or by the user to end it."""
    hung: bool = False
    """True where there is no use in waiting for it to end by itself."""
    pid: int | None = None
    status: int = 0
    """Of the last answer over HTTP."""


class Ended(Exception):
    """A process that went before it could be spoken to."""


@contextlib.asynccontextmanager
async def stdio(config: ServerConfig, logs: Path, condition: Condition) -> AsyncIterator[Streams]:
    """The pipes of a new process, which is the leader of a group of its own and ends with it."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    env = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    env |= {name: expanded(value, name) for name, value in config.env.items()}
    command = str(config.folder / config.command) if os.sep in config.command else config.command
    with _log_file(logs, config.name) as errors:
        process = await asyncio.create_subprocess_exec(
            command,
            *config.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=config.folder,
            env=env,
            start_new_session=True,
            limit=_MESSAGE,
        )
    _GROUPS.add(process.pid)
    condition.pid = process.pid
    to_us, reading = anyio.create_memory_object_stream[Any](0)
    writing, from_us = anyio.create_memory_object_stream[SessionMessage](1_000)
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def read() -> None:
        # A message beyond all measure is a ValueError, and ends the server like any other end of its output.
        with contextlib.suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_us:
                while line := await stdout.readline():
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        log.debug("%s wrote a line that is no message: %.200r", config.name, line)
                        continue
                    await to_us.send(SessionMessage(message))
        condition.over.set()

    async def write() -> None:
        with contextlib.suppress(OSError):
            async for sent in from_us:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()

    pipes = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        yield reading, writing
    except Exception as failure:
        # By now it has ended by itself, if it is ever going to: how says more than that it did.
        if await _ended(process, GRACE / 10):
            where = _log_path(logs, config.name)
            raise Ended(f"it ended with exit code {process.returncode}; see {where}") from failure
        raise
    finally:
        pipes[1].cancel()
        try:
            await _stop(process, kindly=not condition.hung)
        finally:
            pipes[0].cancel()
            for stream in (to_us, reading, writing, from_us):
                stream.close()
        await asyncio.wait(pipes)


@contextlib.asynccontextmanager
async def http(config: ServerConfig, seconds: float, condition: Condition) -> AsyncIterator[Streams]:
    """The SDK follows redirects within the origin of the address only, so none leads into our network."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def remember(response: httpx2.Response) -> None:
        condition.status = response.status_code

    headers = {name: expanded(value, name) for name, value in config.headers.items()}
    client = httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=seconds + 1.0,
        transport=_bounded_transport(),
        event_hooks={"response": [remember]},
    )
    async with client, streamable_http_client(config.url, http_client=client) as streams:
        yield streams


@contextlib.asynccontextmanager
async def screened(transport: Any, seen: list[Any]) -> AsyncIterator[Streams]:
    async with transport as (reading, writing):
        yield _Screened(reading, seen), writing


class _Screened:
    """Takes listings out of a server's messages before the SDK reads them, for which one bad tool spoils them all.

    The SDK is left the names, so that it knows them, and the schemas where these tell it what to put into headers.
    """

    def __init__(self, inner: Any, seen: list[Any]) -> None:
        self._inner = inner
        self._seen = seen

    async def receive(self) -> Any:
        return self._screen(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._screen(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, value, trace)

    def _screen(self, item: Any) -> Any:
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            if len(self._seen) <= MOST:
                self._seen += result["tools"]
            result["tools"] = [_bare(tool) for tool in result["tools"] if isinstance(tool, dict) and _named(tool)]
        return item


def _named(tool: dict[str, Any]) -> bool:
    return isinstance(tool.get("name"), str)


def _bare(tool: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    with contextlib.suppress(Refused, RecursionError, ValueError):
        if "x-mcp-header" in json.dumps(tool.get("inputSchema")):
            schema, _ = sound_schema(tool["inputSchema"])
    return {"name": tool["name"], "inputSchema": schema}


def _bounded_transport() -> httpx2.AsyncHTTPTransport:
    """A transport that reads no endless answer, and none that is unpacked to one."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._inner:
                size += len(chunk)
                if size > _MESSAGE:
                    raise httpx2.StreamError(f"more than {_MESSAGE:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.StreamError("the answer is packed, though nobody asked for that")
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = Bounded(response.stream)
            return response

    return Transport()


# Processes.


def _log_path(folder: Path, name: str) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}.log"


@contextlib.contextmanager
def _log_file(folder: Path, name: str) -> Iterator[IO[bytes] | int]:
    path = _log_path(folder, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_long = path.exists() and path.stat().st_size > _LOG
        opened = path.open("wb" if is_long else "ab")
    except OSError:
        log.debug("no log for %s", name, exc_info=True)
        yield asyncio.subprocess.DEVNULL
        return
    with opened:
        yield opened


async def _stop(process: asyncio.subprocess.Process, *, kindly: bool) -> None:
    """End a process and everything it started, waiting for it to go by itself only if it is not hung."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        if not (kindly and await _ended(process, GRACE)):
            _signal(process.pid, signal.SIGTERM)
            await _ended(process, GRACE)
    finally:
        # Also what the process left behind, and also where nobody has the patience.
        _signal(process.pid, signal.SIGKILL)
        _GROUPS.discard(process.pid)
    await _ended(process, GRACE)
    # A grandchild that left the group may hold a pipe, without which asyncio does not let go of the process.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    # `Process.wait` also waits for the pipes, which whatever the process left behind may hold.
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@atexit.register
def _stop_all() -> None:
    for group in _GROUPS:
        _signal(group, signal.SIGKILL)
