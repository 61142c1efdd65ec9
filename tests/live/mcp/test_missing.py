"""Chats with broken entries and servers that do not start: each is named once, left out, and tried again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agentlab.cli.parser import main
from support.mcp_servers import SERVER, liar

pytestmark = pytest.mark.slow
ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": "said by the server"}}]}
DIE = {"tool_calls": [{"name": "die", "arguments": {}}]}
PLAIN = ("--set", "planning=false", "--set", "reflection=false", "--set", "evaluation=false")
BROKEN = {
    "unknown command": ("mcp-servers", '{"command": "no-such-command"}', "cannot be reached (no-such-command: No such"),
    "dead address": ("remote-mcp-servers", '{"url": "http://127.0.0.1:9/mcp"}', "cannot be reached (ConnectError)"),
    "no JSON": ("mcp-servers", "{bad", "off.json:1: not JSON; it is left out"),
    "no text": ("mcp-servers", "\x00", "off.json:1: not JSON; it is left out"),
    "wrong key": ("mcp-servers", '{"cmd": "x"}', "off.json: server 'off': it is an object with"),
    "unset variable": ("mcp-servers", '{"command": "${NO_SUCH}"}', "NO_SUCH, which is not set)"),
    "ends at its start": (
        "mcp-servers",
        json.dumps({"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}),
        "the MCP server off cannot be reached (it ended; see",
    ),
}


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Return a data folder with one server that works."""
    for folder in ("tools", "mcp-servers", "remote-mcp-servers"):
        (tmp_path / "agent" / folder).mkdir(parents=True)
    (tmp_path / "agent" / "mcp-servers" / "near.json").write_text(json.dumps(liar("plain")))
    return tmp_path / "agent"


def unwrapped(screen: str) -> str:
    """Return the screen as one line, without the branches of a trace."""
    return " ".join(screen.replace("│", " ").split())


@pytest.mark.parametrize(("folder", "entry", "line"), BROKEN.values(), ids=BROKEN)
def test_broken_entry_is_named_once_and_in_the_trace(agent, typed, folder, entry, line):
    (agent / folder / "off.json").write_text(entry)
    screen = typed("ego", "--data", agent, *PLAIN, texts=["Hi", "Hi again", "Hi once more", "/trace"])
    turns, _, trace = unwrapped(screen).partition("├─")
    assert turns.count(line) == 1 and trace.count(line) == 1, screen
    assert screen.splitlines().count("Hello.") == 3
    # The other server is listed; with the entry repaired, nothing is named.
    assert "near" in json.loads((agent / "mcp.tools.json").read_text())["servers"]
    (agent / folder / "off.json").unlink()
    assert line not in unwrapped(typed("ego", "--data", agent, *PLAIN, texts=["Hi", "Hi again", "/trace"]))


def test_repaired_entry_is_used_at_the_next_turn(agent, typed):
    file = agent / "mcp-servers" / "late.json"
    file.write_text("{bad")

    def texts() -> Iterator[str]:
        yield from ("Hi", "Hi again")
        file.write_text(json.dumps(liar("growing")))
        yield from ("And now?", "/trace")

    screen = typed("ego", "--data", agent, *PLAIN, texts=texts())
    before, change, after = unwrapped(screen).partition("the tools of late have changed")
    assert before.count("not JSON") == 1 and change
    assert "not JSON" not in after


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_missing_server_is_tried_again_after_a_minute(agent, typed, monkeypatch, seconds):
    monkeypatch.setattr("agentlab.tools.mcp.tool_manager.RETRY_SECONDS", seconds)
    server = agent / "server.py"
    entry = {"command": sys.executable, "args": [str(server), "--mode", "growing"]}
    (agent / "mcp-servers" / "late.json").write_text(json.dumps(entry))

    def texts() -> Iterator[str]:
        yield "Hi"
        shutil.copy(SERVER, server)
        yield from ("Hi again", "/trace")

    screen = unwrapped(typed("ego", "--data", agent, *PLAIN, texts=texts()))
    _, _, trace = screen.partition("├─")
    assert ("the tools of late have changed" in screen) == (seconds == 0)
    assert ("the MCP server late cannot be reached" in trace) == (seconds > 0)


@pytest.mark.parametrize("flow", ["tools", "coordinator", "tools_rag_fallback"])
def test_other_servers_of_a_file_are_called(typed, flow, tmp_path):
    file = tmp_path / "servers.json"
    servers = {
        "ours": {"command": sys.executable, "args": [str(SERVER)]},
        "off": {"cmd": "x"},
        "away": {"command": "x"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    Path("replies.yaml").write_text(yaml.safe_dump({"replies": [ECHO, "It says that.", "Yes."], "loop": True}))
    screen = unwrapped(typed(flow, "--mcp", file, texts=["What does it say?", "Sure?", "/trace"]))
    turns, _, _ = screen.partition("├─")
    assert turns.count("server 'off': it is an object with either a 'command' or a 'url'; it is left out") == 1
    assert turns.count("the MCP server away cannot be reached") == 1
    assert "call_tool echo said by the server" in turns and "It says that." in turns


@pytest.mark.parametrize("flow", ["tools", "coordinator"])
def test_server_that_ends_in_a_chat_and_does_not_start_again(typed, flow, tmp_path):
    server, file = tmp_path / "server.py", tmp_path / "servers.json"
    shutil.copy(SERVER, server)
    file.write_text(json.dumps({"mcpServers": {"ours": {"command": sys.executable, "args": [str(server)]}}}))
    replies = [DIE, "It ended.", ECHO, "It is away.", ECHO, "It is back."]
    Path("replies.yaml").write_text(yaml.safe_dump({"replies": replies}))

    def texts() -> Iterator[str]:
        yield "End it."
        server.unlink()
        yield "What does it say?"
        shutil.copy(SERVER, server)
        yield "And now?"

    screen = unwrapped(typed(flow, "--mcp", file, texts=texts()))
    ended, _, rest = screen.partition("It ended.")
    away, _, back = rest.partition("It is away.")
    assert "the MCP server ours ended before it answered" in ended
    assert away.count("the MCP server ours cannot be reached") == 1 and "call_tool echo said by the server" in back
    assert "It is back." in back


def test_a_tool_of_a_missing_server_may_be_named_in_the_settings(agent, typed, tmp_path):
    file, listed = tmp_path / "servers.json", ("--set", 'tools=["get_current_time", "good"]')
    file.write_text(json.dumps({"mcpServers": {"off": {"command": "no-such-command"}}}))
    screen = typed("coordinator", "--mcp", file, *listed, texts=["Hi"])
    assert "Hello." in screen.splitlines() and "cannot be reached" in screen
    file.write_text(json.dumps({"mcpServers": {}}))
    screen = typed("coordinator", "--mcp", file, *listed, texts=["Hi"])
    assert "Hello." not in screen.splitlines() and "'good'" in screen


def test_unreadable_file_of_servers_ends_no_chat(typed, tmp_path, capsys):
    file = tmp_path / "servers.json"
    assert main(["chat", "tools", "--model", "scripted/replies.yaml", "--mcp", str(file)]) == 1
    assert capsys.readouterr().err == f"agentlab: {file} does not exist; name a path with MCP servers\n"
    file.write_text(json.dumps({"mcpServers": {"near": liar("plain")}}))

    def texts() -> Iterator[str]:
        yield "Hi"
        file.write_text("{bad")
        yield from ("Hi again", "Hi once more")
        file.unlink()
        yield "Hi at last"

    screen = unwrapped(typed("tools", "--mcp", file, texts=texts()))
    assert screen.count("Hello.") == 4 and screen.count(":1: not JSON; it is left out") == 1


def test_unusable_stored_listing_is_named_and_replaced(agent, typed):
    (agent / "mcp.tools.json").write_text('{"format": 2}')
    screen = typed("ego", "--data", agent, *PLAIN, texts=["Hi", "Hi again"])
    assert unwrapped(screen).count("unknown format of tool listings") == 1
    assert screen.splitlines().count("Hello.") == 2
    assert json.loads((agent / "mcp.tools.json").read_text())["format"] == 1


def test_broken_entry_ends_a_run_before_anything_is_written(agent, typed, tmp_path, capsys):
    Path("conversations.jsonl").write_text(json.dumps({"id": "one", "turns": [{"user": "Hi"}]}))
    given = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--dataset", "."]
    file = agent / "mcp-servers" / "off.json"
    file.write_text("{bad")
    given += ["--set", f'flows=[{{"flow": "ego", "data": "{agent}"}}]']
    assert main(["run", *given, "--out", "run"]) == 1 and not Path("run").exists()
    assert capsys.readouterr().err == f"agentlab: {file}:1: not JSON\n"
    file.unlink()
    assert main(["run", *given, "--out", "run"]) == 0
