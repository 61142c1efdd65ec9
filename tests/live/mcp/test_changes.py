"""Servers that change their tool list while they run: a chat adopts it at its next turn, a run keeps its first list."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentlab.tools.mcp.client import McpServer
from support.mcp_servers import OURS, liar, names, server_of
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def renewed(manager):
    """Return the notice of the next turn after a server announced a change."""
    for _ in range(500):
        if text := await manager.renew():
            return text
        await asyncio.sleep(0.01)
    return []


@pytest.mark.parametrize(
    ("server", "first", "arguments", "fresh"),
    [(liar("growing"), "good", {}, "grown_1"), (OURS, "learn", {"called": "shout"}, "shout")],
    ids=["notified without a subscription", "notified to a subscriber"],
)
async def test_a_changed_list_is_there_at_the_next_turn(opened, tmp_path, server, first, arguments, fresh):
    manager = await opened({"ours": server}, live=True)
    session, other = session_with(), session_with()
    for each in (session, other):
        manager.offer_to(each)
    assert fresh not in session.tools and await manager.renew() == []
    await call(session, first, **arguments)
    assert await renewed(manager) == ["the tools of ours have changed"] and await manager.renew() == []
    assert fresh not in other.tools, "its turn may not be over"
    for each in (session, other):
        manager.offer_to(each)
    assert fresh in session.tools and fresh in other.tools and first in session.tools
    assert not (await call(session, fresh, **({"text": "hey"} if fresh == "shout" else {}))).startswith("Error")
    assert manager.problems == []
    stored = json.loads((tmp_path / "mcp.tools.json").read_text())["servers"]["ours"]["tools"]
    assert fresh in [row["name"] for row in stored], "the next chat begins with it"


async def test_change_between_two_calls_takes_effect(opened, over_http):
    manager = await opened({"far": {"url": over_http.url}}, live=True)
    session = session_with()
    manager.offer_to(session)
    other_server = McpServer(server_of(manager).config, seconds=20.0, logs=over_http._folder)
    assert (await call(session, "echo", text="a")) == "a"
    await other_server.call("learn", {"called": "shout"})
    assert await renewed(manager) == ["the tools of far have changed"] and "shout" in names(manager)
    await other_server.close()


async def test_a_tool_that_is_no_longer_listed_is_offered_no_more(opened, tmp_path):
    file = tmp_path / "mcp.tools.json"
    await (await opened({"ours": OURS})).close()
    file.write_text(file.read_text().replace('"name": "echo"', '"name": "shout"'))
    manager = await opened({"ours": OURS}, live=True)
    session = session_with()
    manager.offer_to(session)
    assert "shout" in session.tools and await call(session, "add", a=1, b=1) == "2"
    assert await manager.renew() == ["the tools of ours have changed"]
    manager.offer_to(session)
    assert "shout" not in session.tools and "echo" in session.tools


async def test_run_keeps_its_first_tools_and_reports_a_change(opened):
    manager = await opened({"ours": liar("growing")})
    session = session_with()
    manager.offer_to(session)
    await call(session, "good")
    await asyncio.sleep(0.1)
    await call(session, "good")
    assert list(session.tools) == names(manager) == ["good"]
    assert manager.problems == ["ours: its tools differ from mcp.tools.json; refresh to store the new listing"]


async def test_constantly_changing_server_blocks_no_turn(opened):
    manager = await opened({"ours": liar("restless")}, live=True)
    session = session_with()
    manager.offer_to(session)
    assert await call(session, "good") == "(the result is empty)"
    assert await manager.renew() == [], "it lists what it listed before"
    assert await call(session, "good") == "(the result is empty)"
