"""MCP servers that are opened for a test, and closed after it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentlab.cli.parser import main
from agentlab.tools.mcp.tool_manager import ToolManager
from support.mcp_servers import OURS, Open, OverHttp
from support.typed_lines import type_lines


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
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, own_home: Any) -> Any:
    """Types lines into a chat with a flow and options; gives all that was shown. The model replies `Hello.`"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: False)
    Path("replies.yaml").write_text("loop: true\nreplies: [Hello.]\n")

    def talk(flow: str, *options: object, texts: Iterable[str]) -> str:
        type_lines(monkeypatch, texts)
        given = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--memory", "kept"]
        assert main(["chat", flow, *given, *map(str, options)]) == 0
        return capsys.readouterr().out

    return talk


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[OverHttp]:
    server = OverHttp(tmp_path)
    server.start()
    yield server
    server.stop()
