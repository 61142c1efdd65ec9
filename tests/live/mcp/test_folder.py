"""A data folder with local tools and MCP servers of both kinds at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.tools.manual import instruction_of
from agentlab.tools.mcp.tool_manager import ToolManager
from support.local_tools import BUILT, DICE, SLEEPY
from support.mcp_servers import ALL, liar, names
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("tools", "mcp-servers", "remote-mcp-servers"):
        (folder / name).mkdir(parents=True)
    return folder


async def test_a_data_folder_holds_local_tools_and_servers_of_both_kinds(data, over_http):
    for name, source in {"dice": DICE, "sleepy": SLEEPY, "built": BUILT, "_helper": "1/0"}.items():
        (data / "tools" / f"{name}.py").write_text(source)
    (data / "mcp-servers" / "near.json").write_text(json.dumps(liar("plain")))
    (data / "remote-mcp-servers" / "far.json").write_text(json.dumps({"url": over_http.url, "timeout": 3}))
    async with await ToolManager.open(data, timeout_seconds=20.0) as manager:
        assert names(manager) == ["good", "dice", "sleepy", "near_good", *ALL]
        assert manager.problems == [
            "far: unknown key 'timeout' in far.json is ignored",
            "near: good: built has a tool of this name; it is called near_good here",
        ]
        assert instruction_of(manager.tools[0]) == "Just call it."
        session = session_with(*manager.tools)
        assert await call(session, "good") == "at 09:20"
        assert await call(session, "dice", sides=6) == '{"rolled": 6}'
        assert await call(session, "dice", sides=0) == "Error: the tool dice failed: ValueError: no sides"
        assert await call(session, "dice") == "Error: dice: arguments: 'sides' is a required property"
        assert await call(session, "sleepy", seconds=0) == ""
        assert await call(session, "near_good") == "(the result is empty)"
        assert await call(session, "add", a=1, b=1) == "2"
    assert sorted(path.name for path in data.iterdir()) == [
        *("mcp-logs", "mcp-servers", "mcp.tools.json", "remote-mcp-servers", "tools")
    ]
