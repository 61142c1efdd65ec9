"""An MCP server in a process of its own: its tools, its results, and its data on the client."""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from agentlab.core.events import ToolRun
from agentlab.tools.manual import instruction_of
from agentlab.tools.mcp.answers import MAX_RESULT_CHARS
from agentlab.tools.mcp.listing import describe
from support.mcp_servers import ALL, OURS, SERVER, names
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def test_a_server_lists_its_tools_and_they_are_kept(ours, tmp_path):
    assert names(ours) == ALL and ours.problems == []
    add = ours.tools[0].spec
    assert add.description.split() == ["Add", "two", "numbers.", "A", "second", "paragraph."]
    assert add.parameters["required"] == ["a", "b"] and add.parameters["properties"]["a"]["type"] == "integer"
    assert instruction_of(ours.tools[1]) == "Write a JSON object with:\n- text (string)"
    stored = json.loads((tmp_path / "mcp.tools.json").read_text())
    assert (stored["format"], list(stored["servers"])) == (1, ["ours"])
    assert stored["servers"]["ours"]["tools"][0]["name"] == "add"
    table = describe(ours.tools).split("\n")
    assert table[0].split() == ["SERVER", "TOOL", "PARAMETERS", "DESCRIPTION"]
    assert table[1].split(maxsplit=4) == ["ours", "add", "a,", "b", "Add two numbers."]
    assert next(line for line in table if " die " in line).split()[2] == "code?"


async def test_results_of_every_kind_become_text(ours):
    session = session_with(*ours.tools)
    assert await call(session, "add", a=2, b=3) == "5"
    assert await call(session, "echo", text="{zwei} é\n☃") == "{zwei} é\n☃"
    assert json.loads(await call(session, "person", who="Ann"))["name"] == "Ann"
    assert await call(session, "everything") == (
        "words\n(image, image/png, 30 bytes, not shown)\n(audio, audio/wav, 30 bytes, not shown)\n"
        "(a link to notes: file:///notes.txt)\nfile:///a.txt:\nthe text of a\n"
        '(file:///b.bin, of unknown type, 30 bytes, not shown)\n{"answer": 42}'
    )
    assert (await call(session, "picture")).startswith("(image, image/png, ")
    assert await call(session, "long", characters=MAX_RESULT_CHARS) == "x" * MAX_RESULT_CHARS
    cut = await call(session, "long", characters=150_000)
    assert cut == "x" * MAX_RESULT_CHARS + "\n(cut: the result has 150,000 characters, the first 100,000 are shown)"
    assert await call(session, "fail", why="no luck") == "Error: Error executing tool fail: no luck"
    assert await call(session, "add", a="two", b=3) == "Error: add: a: 'two' is not of type 'integer'"
    errors = [event.error for event in session.trace.events if isinstance(event, ToolRun) and event.error]
    assert len(errors) == 2
    session.trace.check()


async def test_many_conversations_call_at_once(ours):
    sessions = [session_with(*ours.tools) for _ in range(20)]
    calls = (call(session, "echo", text=str(number)) for number, session in enumerate(sessions))
    assert await asyncio.gather(*calls) == [str(number) for number in range(20)]


async def test_progress_of_a_server_is_in_the_trace(ours):
    session = session_with(*ours.tools)
    items: list[Any] = []
    session.stream.on("tool_progress", items.append)
    session.stream.on("step_ended", items.append)
    assert await call(session, "steps", number=3) == "done"
    assert [item.text for item in items[:3]] == [f"{step}/3 step {step}" for step in (1, 2, 3)], "while it works"
    assert [item.event.kind for item in items[3:]] == ["fetch", "tool"]
    notices = [event for event in session.trace.events if event.kind == "notice"]
    assert [event.text for event in notices] == [f"{step}/3 step {step}" for step in (1, 2, 3)]
    assert {event.data["title"] for event in notices} == {"tool steps: progress"}


async def test_a_server_of_others_from_a_package_index(opened):
    command = Path(sysconfig.get_path("scripts")) / "mcp-server-time"
    manager = await opened({"time": {"command": str(command), "args": ["--local-timezone", "Europe/Oslo"]}})
    assert names(manager) == ["get_current_time", "convert_time"] and manager.problems == []
    session = session_with(*manager.tools)
    row = {"source_timezone": "Europe/Oslo", "time": "16:30", "target_timezone": "Asia/Tokyo"}
    converted = json.loads(await call(session, "convert_time", **row))
    assert converted["source"]["timezone"] == "Europe/Oslo" and converted["target"]["timezone"] == "Asia/Tokyo"
    assert "Mars" in await call(session, "get_current_time", timezone="Mars/Base")
    assert (await call(session, "get_current_time")).endswith("'timezone' is a required property")


async def test_a_server_knows_little_of_our_environment_and_writes_to_its_own_log(opened, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", "a-very-secret-value")
    monkeypatch.setenv("WHERE", "north")
    manager = await opened({"ours": {**OURS, "env": {"PLACE": "${WHERE}!"}}})
    session = session_with(*manager.tools)
    variables = (await call(session, "environment")).split("\n")
    assert "PLACE" in variables and "PATH" in variables and "WHERE" not in variables
    assert not any("KEY" in name for name in variables)
    assert await call(session, "folder", variable="PLACE") == f"{tmp_path} north!"
    log = tmp_path / "mcp-logs" / "ours.log"
    for _ in range(1000):  # the server's words arrive beside its results
        if log.read_text():
            break
        await asyncio.sleep(0.01)
    assert log.read_text() == "a word on stderr\n"
    assert capfd.readouterr().err == ""


async def test_command_is_found_beside_its_configuration_without_a_shell(opened, tmp_path):
    script = tmp_path / "bin" / "server"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" "$@"\n')
    script.chmod(0o755)
    assert "add" in names(await opened({"ours": {"command": "./bin/server"}}))
    manager = await opened({"gone": {"command": "no-such-command; touch pwned"}, "none": {"command": "./none"}})
    assert manager.tools == () and not (tmp_path / "pwned").exists()
    assert manager.problems == [
        "the MCP server gone cannot be reached (no-such-command; touch pwned: No such file or directory)",
        f"the MCP server none cannot be reached ({tmp_path}/none: No such file or directory)",
    ]
