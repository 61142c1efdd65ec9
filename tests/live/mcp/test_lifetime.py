"""MCP servers that are slow, die, or never come up: each ends, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from support.mcp_servers import gone, is_alive, liar, names, server_of
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def test_a_call_that_takes_too_long_is_an_error_and_the_next_one_works(ours):
    session = session_with(*ours.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    server = server_of(ours)
    hung = json.loads(await call(session, "person", who="a"))["pid"]
    server._seconds = 0.3
    told = await call(session, "hang")
    assert told == "Error: hang: the MCP server ours did not answer within 0.3 seconds"
    assert await gone(hung), "it is killed, though it ignores being told to end"
    server._seconds = 20.0
    assert await call(session, "add", a=1, b=2) == "3"
    assert json.loads(await call(session, "person", who="b"))["pid"] != hung


async def test_slow_call_does_not_end_other_calls(ours):
    slow, other = session_with(*ours.tools), session_with(*ours.tools)
    await call(slow, "add", a=1, b=1)
    server = server_of(ours)
    waiting = asyncio.create_task(call(other, "wait", seconds=0.5))
    await asyncio.sleep(0.05)
    server._seconds = 0.1
    assert "did not answer within 0.1 seconds" in await call(slow, "wait", seconds=60)
    assert await waiting == "waited"


async def test_a_server_that_dies_is_started_again(ours):
    session = session_with(*ours.tools)
    first = json.loads(await call(session, "person", who="a"))["pid"]
    told = await call(session, "die")
    assert told == "Error: die: the MCP server ours ended before it answered; it is started again for the next call"
    second = json.loads(await call(session, "person", who="b"))["pid"]
    assert second != first
    os.kill(second, 9)
    assert await gone(second)
    await asyncio.sleep(0.2)
    assert json.loads(await call(session, "person", who="c"))["pid"] not in (first, second)


async def test_a_call_that_is_given_up_leaves_the_server_to_the_others(ours):
    session = session_with(*ours.tools)
    pid = json.loads(await call(session, "person", who="a"))["pid"]
    waiting = asyncio.create_task(call(session, "wait", seconds=60))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert json.loads(await call(session, "person", who="b"))["pid"] == pid


async def test_closed_server_leaves_nothing_behind(ours):
    session = session_with(*ours.tools)
    pid = json.loads(await call(session, "person", who="a"))["pid"]
    assert is_alive(pid)
    await ours.close()
    assert await gone(pid)
    assert await call(session, "add", a=1, b=1) == "2", "a tool that is called after all starts its server again"
    await ours.close()
    await ours.close()


async def test_failing_servers_do_not_block_loading(opened, tmp_path):
    servers = {mode: liar(mode) for mode in ("silent", "broken", "no list", "noise")}
    manager = await opened(servers, timeout_seconds=2.5)
    assert names(manager) == ["good"]
    log = tmp_path / "mcp-logs" / "broken.log"
    assert manager.problems == [
        "the MCP server silent cannot be reached (no answer within 2.5 seconds)",
        f"the MCP server broken cannot be reached (it ended; see {log})",
        "the MCP server no list cannot be reached (what it says does not follow the protocol)",
    ]
    assert log.read_text() == "no such luck\n" * 2, "with the newer handshake, and with the older one"
    assert await call(session_with(*manager.tools), "good") == "(the result is empty)"


async def test_of_an_answer_in_another_form_what_is_readable_is_read(opened):
    manager = await opened({"bad": liar("nonsense")})
    assert await call(session_with(*manager.tools), "good") == "not a list"


async def test_a_server_that_hangs_ends_with_everything_it_started(ours):
    session = session_with(*ours.tools)
    child, pid = int(await call(session, "spawn")), json.loads(await call(session, "person", who="a"))["pid"]
    server_of(ours)._seconds = 0.3
    await call(session, "hang")
    assert await gone(pid) and await gone(child)
