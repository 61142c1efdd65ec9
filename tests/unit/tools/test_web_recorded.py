"""A web search as one recorded call: replayed without a network, checked, and never holding a secret."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import NotRecorded, RecordingError
from agentlab.core.events import Fetch
from agentlab.core.messages import Message, Reply, ToolCall
from agentlab.models.scripted import Scripted
from agentlab.tools.web import UNAVAILABLE
from agentlab.wire.recorder import Recorder
from agentlab.wire.recordings import Recordings
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set
from support.search_engine import hit, searching
from support.tool_sessions import call, notices


def recorded(folder: Path, mode: str) -> Recorder:
    return Recorder(mode, Recordings.open(folder, "web", write=mode != "replay"))


async def test_a_search_is_one_recorded_call_and_replays_without_a_network(web, engine, tmp_path, monkeypatch):
    web.page("/ferry", "<p>The ferry leaves at 08:00.")
    engine.results = [hit(web.url("/ferry")), hit("http://[", body="é \ud83d")]
    session, _ = searching("At 08:00.", recorder=recorded(tmp_path, "record"))
    assert await call(session, "search_web", query="ferry") == "At 08:00."
    (live,) = (e for e in session.trace.events if isinstance(e, Fetch))
    rows = [json.loads(line) for line in (tmp_path / "web.jsonl").read_text().splitlines()]
    (row,) = (row for row in rows if row["kind"] == "result")
    assert (row["of"], row["facts"]) == ("web search", {"query": "ferry", "results": 5})
    assert [result["text"] for result in row["value"]] == ["The ferry leaves at 08:00.", ""]
    assert row["value"][1]["problem"] and row["seconds"] == live.seconds > 0

    web.answers.clear()
    monkeypatch.setitem(sys.modules, "ddgs", None)
    replayed, _ = searching(recorder=recorded(tmp_path, "replay"))
    assert await call(replayed, "search_web", query="ferry") == "At 08:00."
    (again,) = (e for e in replayed.trace.events if isinstance(e, Fetch))
    assert (again.seconds, again.origin, live.origin) == (live.seconds, "replay", "live")
    assert replayed.trace.latency(1) == session.trace.latency(1)


async def test_a_search_that_was_not_recorded_is_no_answer_for_the_model(engine, tmp_path):
    session, _ = searching("ok", recorder=recorded(tmp_path, "record"))
    engine.results = [hit("x")]
    await call(session, "search_web", query="ferry")
    replayed, _ = searching(recorder=recorded(tmp_path, "replay"))
    with pytest.raises(NotRecorded, match=r"no web search is recorded for .*trains.*--mode auto records it") as miss:
        await call(replayed, "search_web", query="trains")
    assert miss.value.cause == "web search"
    (notice,) = notices(replayed, "not_recorded")
    assert notice.data == {"cause": "web search"}
    assert [e.error for e in replayed.trace.events if isinstance(e, Fetch)] == [f"NotRecorded: {miss.value}"]
    replayed.trace.check()


async def test_a_failed_search_is_replayed_and_auto_asks_again(engine, tmp_path):
    engine.results = OSError()
    session, _ = searching(recorder=recorded(tmp_path, "auto"))
    result = await call(session, "search_web", query="ferry")
    replayed, _ = searching(recorder=recorded(tmp_path, "replay"))
    assert await call(replayed, "search_web", query="ferry") == result == UNAVAILABLE
    assert [e.text for e in notices(replayed, "web_unavailable")] == ["the search engine cannot be used (OSError)"]
    assert replayed.trace.latency(1) == session.trace.latency(1)
    engine.results = [hit("x")]
    session, _ = searching("ok", recorder=recorded(tmp_path, "auto"))
    assert await call(session, "search_web", query="ferry") == "ok"
    assert len(engine.received) == 2
    replayed, _ = searching(recorder=recorded(tmp_path, "replay"))
    assert await call(replayed, "search_web", query="ferry") == "ok"


async def test_while_a_run_is_recorded_a_search_is_made_once(engine, tmp_path):
    engine.results = [hit("x")]
    recorder = recorded(tmp_path, "record")
    sessions = [searching("one", recorder=recorder)[0] for _ in range(3)]
    assert set(await asyncio.gather(*(call(s, "search_web", query="ferry") for s in sessions))) == {"one"}
    assert len(engine.received) == 1


async def test_results_are_checked_like_every_recording(engine, tmp_path, monkeypatch):
    engine.results = [hit("x", body="the value")]
    session, _ = searching("ok", recorder=recorded(tmp_path, "record"))
    await call(session, "search_web", query="ferry")
    file = tmp_path / "web.jsonl"
    whole = file.read_text()
    file.write_text(whole.replace("the value", "another"))
    with pytest.raises(RecordingError, match="was changed after it was recorded"):
        Recordings.open(tmp_path, "web")
    other = tmp_path / "other"
    engine.results = [hit("x", body="another")]
    session, _ = searching("ok", recorder=recorded(other, "record"))
    await call(session, "search_web", query="ferry")
    file.write_text(whole + "".join((other / "web.jsonl").read_text().splitlines(True)[1:]))
    with pytest.raises(RecordingError, match="another answer to the same request"):
        Recordings.open(tmp_path, "web")


async def test_a_secret_in_a_result_is_not_written_down(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-very-secret-value")
    engine.results = [hit("x", body="it is a-very-secret-value")]
    session, _ = searching("ok", recorder=recorded(tmp_path, "record"))
    with pytest.raises(RecordingError, match="holds the value of MY_API_KEY"):
        await call(session, "search_web", query="ferry")
    assert "a-very-secret-value" not in (tmp_path / "web.jsonl").read_text()


def test_a_run_with_searches_replays_to_the_same_numbers(engine, tmp_path, own_home, monkeypatch):
    async def curious(turn, session):
        result = await session.call_tool(ToolCall(id="c", name="search_web", arguments={"query": turn.text}))
        reply = await session.complete((Message(role="user", text=result.text),))
        return Reply(text=reply.message.text)

    curious.TOOLS = ("search_web",)
    engine.results = [hit("http://127.0.0.1:9/", body="The ball is round.")]
    dataset = write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)

    def play(mode: str, model: Scripted) -> Any:
        spec = {"datasets": [str(dataset)], "recordings": str(tmp_path / "recordings"), "flows": [curious]}
        with al.Lab(model=model, embedder="hashing/hashing-64", mode=mode, **spec) as laboratory:
            return laboratory.run_sync(out=tmp_path / mode)

    recorded = play("record", Scripted(["It is round."], loop=True))
    monkeypatch.setitem(sys.modules, "ddgs", None)
    replayed = play("replay", Scripted([]))
    assert replayed.summary["status"] == "complete"
    flows = [
        {k: v for k, v in run.summary["flows"]["curious"].items() if k != "billed"} for run in (recorded, replayed)
    ]
    assert flows[0] == flows[1]
    assert flows[0]["tool_calls"] == flows[0]["turns"] and flows[0]["llm_calls"] == 2 * flows[0]["turns"]
    assert set(replayed.calls.loc[replayed.calls["kind"] == "fetch", "origin"]) == {"replay"}
