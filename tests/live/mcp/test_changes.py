"""Servers that change their list of tools while they run: a chat takes it up at once, a run keeps what it had."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentlab.tools.mcp.client import McpServer
from support.mcp_servers import OURS, liar, names, server_of
from support.tool_sessions import call, notices, session_with

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("server", "first", "arguments", "fresh"),
    [(liar("growing"), "good", {}, "grown_1"), (OURS, "learn", {"called": "shout"}, "shout")],
    ids=["told without being asked", "told to who listens"],
)
async def test_a_changed_list_is_there_at_the_next_step(opened, tmp_path, server, first, arguments, fresh):
    manager = await opened({"ours": server}, live=True)
    session, other = session_with(), session_with()
    for each in (session, other):
        manager.offer_to(each)
    assert fresh not in session.tools
    await call(session, first, **arguments)
    assert fresh in session.tools and fresh in other.tools and first in session.tools
    told = [notice.text for notice in notices(session, "subsystemMessage")]
    assert told == [f"the tools of ours have changed (new: {fresh})"]
    assert not (await call(session, fresh, **({"text": "hey"} if fresh == "shout" else {}))).startswith("Error")
    assert manager.problems == []
    kept = json.loads((tmp_path / "mcp.tools.json").read_text())["servers"]["ours"]["tools"]
    assert fresh in [row["name"] for row in kept], "the next chat begins with it"


async def test_a_change_between_two_calls_is_taken_up_too(opened, over_http, monkeypatch):
    manager = await opened({"far": {"url": over_http.url}}, live=True)
    mine, theirs = session_with(), session_with()
    manager.offer_to(mine)
    stranger = McpServer(server_of(manager).config, seconds=20.0, logs=over_http._folder, on_listing=_heard)
    assert (await call(mine, "echo", text="a")) == "a"
    await stranger.call("learn", {"called": "shout"})
    for _ in range(500):
        if "shout" in mine.tools:
            break
        await asyncio.sleep(0.01)
    assert "shout" in mine.tools and "shout" not in theirs.tools
    await stranger.close()


async def test_a_run_keeps_the_tools_it_began_with_and_somebody_is_told(opened):
    manager = await opened({"ours": liar("growing")})
    session = session_with()
    manager.offer_to(session)
    await call(session, "good")
    assert list(session.tools) == names(manager) == ["good"]
    assert len(manager.problems) == 1 and "(new: grown_1); refresh to take it over" in manager.problems[0]


async def test_a_server_that_never_stops_changing_is_asked_for_its_list_so_often_and_no_more(opened):
    manager = await opened({"ours": liar("restless")}, live=True)
    session = session_with()
    manager.offer_to(session)
    assert await call(session, "good") == ""
    assert await call(session, "good") == ""


async def _heard(rows):
    return ""
