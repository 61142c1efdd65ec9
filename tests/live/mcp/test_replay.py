"""Calls of MCP servers: recorded, replayed without a server, and reported if a listing changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentlab.core.errors import MissingExtra, NotRecorded, RecordingError
from agentlab.core.events import Fetch
from agentlab.wire.recorder import Recorder
from agentlab.wire.recordings import Recordings
from support.mcp_servers import OURS, SERVER, names
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


def recorder(folder: Path, mode: str) -> Recorder:
    return Recorder(mode, Recordings.open(folder, "mcp", write=mode != "replay"))


async def test_calls_are_recorded_and_replayed_without_any_server(opened, tmp_path, monkeypatch):
    counting = {**OURS, "args": [*OURS["args"], "--note", str(tmp_path / "note.txt")]}
    live = await opened({"ours": counting})
    recorded = session_with(*live.tools, recorder=recorder(tmp_path / "rec", "record"))

    async def play(session: Any) -> list[str]:
        result = [await call(session, "count"), await call(session, "count"), await call(session, "echo", text="a")]
        return [*result, await call(session, "fail", why="x"), await call(session, "count")]

    answers = await play(recorded)
    assert answers == ["1", "2", "a", "Error: Error executing tool fail: x", "3"], "asked again, it is called again"
    rows = [json.loads(line) for line in (tmp_path / "rec" / "mcp.jsonl").read_text().splitlines()]
    facts = [row["facts"] for row in rows if row["kind"] == "result"]
    assert [requests.get("repeat", 0) for requests in facts] == [0, 1, 0, 0, 2]
    await live.close()

    monkeypatch.setitem(sys.modules, "mcp", None)
    replayed = await opened({"ours": counting})
    assert [t.spec for t in replayed.tools] == [t.spec for t in live.tools]
    session = session_with(*replayed.tools, recorder=recorder(tmp_path / "rec", "replay"))
    assert await play(session) == answers
    assert (tmp_path / "note.txt").read_text() == "3"
    fetches = [event for event in session.trace.events if isinstance(event, Fetch)]
    assert {event.origin for event in fetches} == {"replay"}
    assert [event.kind for event in session.trace.events] == [event.kind for event in recorded.trace.events]
    assert session.trace.latency(1) == recorded.trace.latency(1)
    with pytest.raises(NotRecorded, match="no mcp is recorded for"):
        await call(session, "echo", text="another")


async def test_a_failure_to_answer_is_replayed_too(opened, tmp_path, monkeypatch):
    live = await opened({"ours": OURS})
    recorded = session_with(*live.tools, recorder=recorder(tmp_path / "rec", "record"))

    async def play(session: Any) -> list[str]:
        return [await call(session, "die"), await call(session, "die"), await call(session, "echo", text="a")]

    answers = await play(recorded)
    assert "ended before it answered" in answers[0] and answers[2] == "a"
    await live.close()

    monkeypatch.setitem(sys.modules, "mcp", None)
    session = session_with(*(await opened({"ours": OURS})).tools, recorder=recorder(tmp_path / "rec", "replay"))
    assert await play(session) == answers
    assert [getattr(e, "error", None) for e in session.trace.events] == [
        getattr(e, "error", None) for e in recorded.trace.events
    ]
    assert session.trace.latency(1) == recorded.trace.latency(1) > 0


async def test_changed_server_listing_is_reported(opened, tmp_path):
    first = await opened({"ours": OURS})
    await first.close()
    file = tmp_path / "mcp.tools.json"
    stored = json.loads(file.read_text())
    tools = stored["servers"]["ours"]["tools"]
    tools[0]["description"] = "As it was."
    tools[1]["name"] = "shout"
    file.write_text(json.dumps(stored))

    manager = await opened({"ours": OURS})
    assert names(manager)[:2] == ["add", "shout"] and manager.problems == []
    session = session_with(*manager.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    assert manager.problems == ["ours: its tools differ from mcp.tools.json; refresh to store the new listing"]
    assert await call(session, "shout", text="x") == "Error: Unknown tool: shout"
    assert names(manager)[:2] == ["add", "shout"], "a run keeps its tools to its end"
    await manager.close()
    assert names(await opened({"ours": OURS}, refresh=True)) == names(first)
    assert json.loads(file.read_text())["servers"]["ours"]["tools"][1]["name"] == "echo"
    broken = {"ours": {"command": "./none"}}
    assert (await opened(broken)).tools == (), "an entry that was changed is another server"


async def test_unavailable_server_keeps_its_listed_tools(opened, tmp_path):
    script = tmp_path / "server"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" --mode plain\n')
    script.chmod(0o755)
    await opened({"ours": {"command": "./server"}})
    script.unlink()
    manager = await opened({"ours": {"command": "./server"}}, refresh=True)
    assert names(manager) == ["good"]
    assert manager.problems[0].endswith("No such file or directory); its stored listing is used")
    assert (await call(session_with(*manager.tools), "good")).startswith("Error: the MCP server ours cannot be reached")


async def test_listing_without_the_package_names_the_extra(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"MCP servers needs an extra: pip install 'agentlab-harness\[mcp\]'"):
        await opened({"ours": OURS})


async def test_no_recording_keeps_the_key_of_a_server(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", "a-very-hidden-value")
    manager = await opened({"ours": {**OURS, "env": {"MAP_TOKEN": "${PLACE}", "HOME": "/somewhere/else"}}})
    session = session_with(*manager.tools, recorder=recorder(tmp_path / "rec", "record"))
    with pytest.raises(RecordingError, match="holds the value of"):
        await call(session, "folder", variable="MAP_TOKEN")
    assert "/somewhere/else" in await call(session, "folder", variable="HOME")
    assert "a-very-hidden-value" not in (tmp_path / "mcp.tools.json").read_text()
