"""MCP servers with false tool lists, or with tools that another server lists, too."""

from __future__ import annotations

import pytest

from agentlab.core.events import Fetch
from agentlab.tools.mcp.listing import MAX_TOOLS
from support.mcp_servers import liar, names
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def test_a_listing_that_breaks_the_protocol_keeps_its_good_tools(opened):
    manager = await opened({"liar": liar("liars")})
    assert names(manager) == ["good", "invalid", "numbered", "long"]
    assert "liar: bare: is left out: its schema is not an object" in manager.problems
    assert "liar: tool 9 is left out: it has no usable name" in manager.problems


@pytest.mark.parametrize("mode", ["ten thousand", "endless"])
async def test_servers_that_lie_are_taken_for_what_they_are(opened, mode):
    manager = await opened({"liar": liar(mode)})
    assert len(manager.tools) == MAX_TOOLS
    assert manager.problems == ["only the first 128 tools are used; remove unneeded servers or scripts"]
    assert await call(session_with(*manager.tools), names(manager)[0]) == "(the result is empty)"
    again = await opened({"liar": liar(mode)})
    assert (names(again), again.problems) == (names(manager), manager.problems)


async def test_a_name_that_two_servers_have_gets_theirs_in_front(opened, tmp_path):
    good = liar("plain")
    manager = await opened({"a": good, "b": good, "c": {**good, "disabled": True}})
    assert names(manager) == ["a_good", "b_good"]
    assert manager.problems == [
        f"{server}: good: another server has a tool of this name; it is called {server}_good here" for server in "ab"
    ]
    session = session_with(*manager.tools)
    await call(session, "b_good")
    (fetch,) = (event for event in session.trace.events if isinstance(event, Fetch))
    assert (fetch.source, fetch.facts) == ("mcp", {"server": "b", "tool": "good", "arguments": {}})
    again = await opened({"a": good, "b": good})
    assert (names(again), again.problems) == (names(manager), manager.problems)
