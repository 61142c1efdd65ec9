"""MCP servers that are slow, die, or never come up: each ends, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

import agentlab as al
from agentlab.models.scripted import Scripted
from agentlab.models.scripted import call as scripted_call
from support.mcp_servers import OURS, has_ended, is_alive, liar, names, server_of
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def test_a_call_that_takes_too_long_is_an_error_and_the_next_one_works(ours):
    session = session_with(*ours.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    server = server_of(ours)
    hung = json.loads(await call(session, "person", who="a"))["pid"]
    server._seconds = 0.3
    result = await call(session, "hang")
    assert result == "Error: hang: the MCP server ours did not answer within 0.3 seconds"
    assert await has_ended(hung), "it is killed, though it ignores the request to end"
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
    result = await call(session, "die")
    assert result == "Error: die: the MCP server ours ended before it answered; it is started again for the next call"
    second = json.loads(await call(session, "person", who="b"))["pid"]
    assert second != first
    os.kill(second, 9)
    assert await has_ended(second)
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
    assert await has_ended(pid)
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
    assert await has_ended(pid) and await has_ended(child)


async def test_a_server_has_its_own_time_limit(opened):
    manager = await opened({"ours": {**OURS, "timeout": 6}})
    session = session_with(*manager.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    result = await call(session, "wait", seconds=60)
    assert result == "Error: wait: the MCP server ours did not answer within 6 seconds"


async def test_progress_extends_the_time_of_a_call_and_silence_does_not(ours):
    session = session_with(*ours.tools)
    await call(session, "add", a=1, b=1)
    server_of(ours)._seconds = 0.5
    pid = json.loads(await call(session, "person", who="a"))["pid"]
    assert await call(session, "crawl", seconds=1.5, every=0.1) == "arrived"
    assert json.loads(await call(session, "person", who="b"))["pid"] == pid, "the server was not ended"
    assert "did not answer within 0.5 seconds" in await call(session, "crawl", seconds=3, every=1.5)


async def test_endless_progress_ends_at_twenty_times_the_limit(ours):
    session = session_with(*ours.tools)
    await call(session, "add", a=1, b=1)
    server_of(ours)._seconds = 0.1
    assert "did not answer within 0.1 seconds" in await call(session, "crawl", seconds=600, every=0.02)


def test_a_spec_sets_the_time_limit_of_tools(tmp_path, own_home):
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"ours": OURS}}))
    (tmp_path / "conversations.jsonl").write_text(json.dumps({"id": "one", "turns": [{"user": "Wait."}]}))
    model = Scripted([scripted_call("wait", seconds=60), "It took too long."])
    given = {"mcp": str(tmp_path / "servers.json"), "timeouts": {"tool": 6}, "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=[str(tmp_path)], flows=["coordinator"], model=model, **given) as lab:
        lab.run_sync(out=tmp_path / "run")
    assert "did not answer within 6 seconds" in (tmp_path / "run" / "calls.jsonl").read_text()
