"""The data folder: local tools that run too long or are broken, and folders that contradict themselves."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.models.scripted import Scripted
from agentlab.tools.mcp.tool_manager import ToolManager
from support.local_tools import DICE, SLEEPY
from support.tool_sessions import call, session_with


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("tools", "mcp-servers", "remote-mcp-servers"):
        (folder / name).mkdir(parents=True)
    return folder


async def test_a_local_tool_that_takes_too_long_is_given_up(data):
    (data / "tools" / "sleepy.py").write_text(SLEEPY)
    async with await ToolManager.open(data, timeout_seconds=0.05) as manager:
        result = await call(session_with(*manager.tools), "sleepy", seconds=60)
    assert result == "Error: sleepy did not finish within 0.05 seconds"


@pytest.mark.slow
def test_a_local_tool_that_was_given_up_keeps_no_process_alive(tmp_path):
    (tmp_path / "stuck.py").write_text("PARAMETERS = {}\nimport time\ndef execute(arguments): time.sleep(60)\n")
    script = f"""if True:
        import asyncio, pathlib
        from agentlab.tools.mcp.scripts import load_scripts
        (tool,) = load_scripts(pathlib.Path({str(tmp_path)!r}), 0.05)
        try:
            asyncio.run(tool.run({{}}, None))
        except Exception as failure:
            print(failure)
        """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.stderr) == ("stuck did not finish within 0.05 seconds\n", "")


async def test_late_result_of_a_local_tool_is_ignored(data):
    (data / "tools" / "slow.py").write_text(
        "import time\nPARAMETERS = {}\ndef execute(arguments):\n    time.sleep(0.1)\n    return 'late'\n"
    )
    async with await ToolManager.open(data, timeout_seconds=0.02) as manager:
        result = await call(session_with(*manager.tools), "slow")
        await asyncio.sleep(0.2)
    assert result == "Error: slow did not finish within 0.02 seconds"


def run_of_the_layered_agent(tmp_path: Path, **turn: Any) -> Path:
    """Start a run of one turn with the data folder in `tmp_path`; return its run folder."""
    (tmp_path / "set").mkdir(exist_ok=True)
    (tmp_path / "set" / "conversations.jsonl").write_text(json.dumps({"id": "a", "turns": [{"user": "hi"}], **turn}))
    reply = '{"chat": "Hello.", "canvas": ""}'
    flow = {"flow": "ego", "data": str(tmp_path / "data"), "planning": False, "reflection": False}
    settings = {"embedder": "hashing/hashing-64", "scorers": ["answer"], "datasets": [str(tmp_path / "set")]}
    with al.Lab(flows=[flow], model=Scripted([reply], loop=True), **settings) as lab:
        lab.run_sync(out=tmp_path / "run")
    return tmp_path / "run"


def test_a_broken_tool_file_ends_a_run_before_anything_is_written(data, own_home, tmp_path):
    (data / "tools" / "bad.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"bad\.py: cannot be loaded: ZeroDivisionError"):
        run_of_the_layered_agent(tmp_path)
    assert not (tmp_path / "run").exists()
    # A conversation that brings its own tools leaves those of the folder alone.
    tools = [{"name": "own", "description": "", "parameters": {"type": "object"}}]
    assert (run_of_the_layered_agent(tmp_path, tools=tools) / "run.json").exists()


def test_problems_of_tools_are_in_the_run_log(data, own_home, tmp_path):
    (data / "tools" / "dice.py").write_text(DICE)
    (data / "mcp-servers" / "away.json").write_text('{"command": "no-such-command-here"}')
    run = run_of_the_layered_agent(tmp_path)
    (line,) = [
        line for line in (run / "run.log").read_text().splitlines() if " WARNING agentlab.workbench.workbench: " in line
    ]
    assert "the MCP server away cannot be reached (no-such-command-here: No such file or directory)" in line


@pytest.mark.parametrize(
    ("source", "problem"),
    {
        "def execute(:": "cannot be loaded: SyntaxError: ",
        "import no_such_module": "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        "raise SystemExit(3)": "cannot be loaded: SystemExit: 3",
        "x = 1": "no tool; define PARAMETERS and execute(arguments), or use the decorator @tool",
        "PARAMETERS = {}\nexecute = 3": "no tool; define PARAMETERS and execute(arguments), or use the decorator @tool",
        "PARAMETERS = []\ndef execute(a): pass": "broken: broken: is left out: its schema is not an object",
        "PARAMETERS = {}\nNAME = 3\ndef execute(a): pass": "broken: tool 1 is left out: it has no usable name",
    }.items(),
)
async def test_a_broken_tool_file_is_one_line(data, source, problem):
    (data / "tools" / "broken.py").write_text(source)
    with pytest.raises(ConfigError) as refusal:
        await ToolManager.open(data)
    text = str(refusal.value)
    assert text.startswith(f"{data}/tools/broken.py: {problem}") and "\n" not in text


async def test_a_data_folder_that_contradicts_itself_is_one_line(data):
    with pytest.raises(ConfigError, match=r"there is no file or folder .*nowhere to load tools from"):
        await ToolManager.open(data / "nowhere")
    with pytest.raises(ConfigError, match=r"there is no file or folder .*none\.json to load tools from"):
        await ToolManager.open(data / "none.json")
    (data / "mcp-servers" / "x.json").write_text('{"cmd": "x"}')
    with pytest.raises(ConfigError, match="server 'x': it is an object with either a 'command' or a 'url'"):
        await ToolManager.open(data)
    (data / "mcp-servers" / "x.json").write_text('{"command": "x"}')
    (data / "remote-mcp-servers" / "x.json").write_text('{"url": "http://127.0.0.1:9/"}')
    with pytest.raises(ConfigError, match="there is another server called 'x'"):
        await ToolManager.open(data)
    (data / "remote-mcp-servers" / "x.json").unlink()
    (data / "mcp.tools.json").write_text('{"format": 2}')
    with pytest.raises(ConfigError, match=r"mcp\.tools\.json: unknown format of tool listings; delete the file"):
        await ToolManager.open(data)
