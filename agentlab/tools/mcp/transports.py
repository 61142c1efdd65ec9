"""Transports to MCP servers: the pipes of a child process, and streamable HTTP."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from agentlab.tools.mcp import launch
from agentlab.tools.mcp.config import ServerConfig, expand_variables

_MAX_LOG_BYTES = 1_000_000
"""Size at which a log file ends; the next start overwrites a full one."""
MAX_MEMORY_BYTES = 4 * 2**30
"""Memory limit of a server process."""
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""Variables that a process inherits beside the few of the SDK. API keys are not among them."""


@contextlib.asynccontextmanager
async def start_process(config: ServerConfig, log_file: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server's process and yield its streams; at the end the SDK stops it and its children."""
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
async def connect_http(config: ServerConfig, seconds: float, statuses: list[int]) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to an HTTP server and yield its streams; append the status of each response to `statuses`.

    The SDK follows redirects only within the origin of the address, so none leads into the user's network.
    """

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
