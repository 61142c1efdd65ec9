"""MCP servers that are opened for a test, and closed after it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentlab.tools.mcp.tool_manager import ToolManager
from support.mcp_servers import OURS, Open, OverHttp


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.3)
    monkeypatch.setattr("mcp.client.stdio.FORCE_KILL_TIMEOUT", 0.3)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Writes `{name: entry}` as a configuration and opens it; the fixture closes all managers at its end."""
    managers = []

    async def opening(servers: dict[str, Any], **options: Any) -> ToolManager:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        managers.append(await ToolManager.open(file, **{"timeout_seconds": 20.0, **options}))
        return managers[-1]

    yield opening
    for manager in managers:
        await manager.close()


@pytest.fixture
async def ours(opened: Open) -> ToolManager:
    return await opened({"ours": OURS})


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[OverHttp]:
    server = OverHttp(tmp_path)
    server.start()
    yield server
    server.stop()
