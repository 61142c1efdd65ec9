"""MCP servers in processes of their own: how they are configured, reached, looked at and missed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agentlab.tools.mcp.client import McpServer
from agentlab.tools.mcp.tool_manager import ToolManager
from support import mcp_file_server, mcp_server

SERVER, FILE_SERVER = Path(mcp_server.__file__), Path(mcp_file_server.__file__)
OURS = {"command": sys.executable, "args": [str(SERVER)]}
ALL = [
    *("add", "echo", "person", "fail", "everything", "picture", "long", "count", "steps", "wait", "hang", "die"),
    *("spawn", "environment", "learn", "folder", "book", "crawl"),
]
Open = Callable[..., Awaitable[ToolManager]]


def server_of(manager: ToolManager) -> McpServer:
    return manager.servers[0]


def liar(mode: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), "--mode", mode]}


def names(manager: ToolManager) -> list[str]:
    return [tool.spec.name for tool in manager.tools]


def is_alive(pid: int) -> bool:
    """Return True if the process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def has_ended(pid: int) -> bool:
    for _ in range(200):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


class OverHttp:
    """A server of ours on a port of this machine, in a process that can be ended and started again."""

    def __init__(self, folder: Path, server: Path = SERVER) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._folder, self._server = folder, server
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(self._server), "--http", str(self.port)], cwd=self._folder
        )
        for _ in range(1_500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert self._process.poll() is None
            time.sleep(0.01)
        raise AssertionError("the server does not come up")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
