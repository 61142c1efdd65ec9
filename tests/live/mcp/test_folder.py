"""A data folder with local tools and MCP servers of both kinds at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.events import Notice
from agentlab.models.scripted import Scripted
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
    (data / "remote-mcp-servers" / "far.json").write_text(
        json.dumps({"url": over_http.url, "timeout": 3, "retries": 3})
    )
    async with await ToolManager.open(data, timeout_seconds=20.0) as manager:
        assert names(manager) == ["good", "dice", "sleepy", "near_good", *ALL]
        assert manager.problems == [
            "far: unknown key 'retries' in far.json is ignored",
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


def test_a_disabled_server_is_left_out_and_a_broken_script_is_named(data, capsys):
    (data / "tools" / "dice.py").write_text(DICE)
    (data / "tools" / "bad.py").write_text("1 / 0")
    (data / "mcp-servers" / "near.json").write_text(json.dumps({**liar("plain"), "disabled": True}))
    (data / "remote-mcp-servers" / "far.json").write_text('{"url": "http://127.0.0.1:9/mcp", "disabled": true}')
    assert main(["list", "tools", "--data", str(data)]) == 0
    listed = capsys.readouterr().out
    assert "near" not in listed and "far" not in listed and "dice" in listed
    assert f"note: {data}/tools/bad.py: cannot be loaded: ZeroDivisionError: division by zero" in listed
    (data / "mcp-servers" / "near.json").write_text(json.dumps({**liar("plain"), "disabled": False}))
    assert main(["list", "tools", "--data", str(data)]) == 0
    assert "near    good" in capsys.readouterr().out


async def test_a_chat_continues_without_a_broken_script(data, own_home):
    (data / "tools" / "dice.py").write_text(DICE)
    (data / "tools" / "bad.py").write_text("import no_such_module")
    flow = {"flow": "ego", "data": str(data), "planning": False, "reflection": False, "evaluation": False}
    reply = Scripted(['{"step": null, "chat": "Hello.", "canvas": ""}'], loop=True)
    with al.Lab(flows=[flow], model=reply, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=())
        assert (await chat.say("Hi")).text == "Hello."
        notices = [event.text for event in chat.trace.events if isinstance(event, Notice)]
    assert any(text.startswith(f"{data}/tools/bad.py: cannot be loaded: ModuleNotFoundError") for text in notices)
