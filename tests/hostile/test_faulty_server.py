"""Servers that lie, drip, flood or are down: every turn counts, no call hangs, and the budget limits the run."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import agentlab as al
from agentlab.core.constants import USAGE_UNKNOWN
from agentlab.core.errors import ModelError, RateLimited, Retryable
from agentlab.core.messages import Message, Request
from agentlab.evals.play import player
from agentlab.models import openai, openai_connection
from agentlab.models.embedders import openai as embedders
from agentlab.models.scripted import Scripted
from agentlab.wire import retries
from support import fake_openai
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

HELLO = Request(messages=(Message(role="user", text="Hello"),))
Handler = Callable[[web.Request], Any]


@pytest.fixture
def spec(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    prices = tmp_path / "prices.yaml"
    prices.write_text('dated: "2026"\nmodels:\n  openai/any: {input: 2, output: 10}\n')
    return {
        "datasets": [str(write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS))],
        "embedder": "hashing/hashing-64",
        "flows": ["rag_only"],
        "scorers": ["answer"],
        "prices": str(prices),
    }


async def run(spec: dict[str, Any], response: Any, out: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> al.Run:
    async with fake_openai.serving(response if callable(response) else lambda body: response) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(model="openai/any", **spec | more) as lab:
            return await lab.run(out=out, resume=out.exists())


def usage(given: Any, made: Any) -> dict[str, Any]:
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": 0}


@pytest.mark.parametrize("odd", [-(10**9), "many", float("nan"), float("inf"), 10**400])
async def test_usage_that_cannot_be_costs_nothing_but_certainty(spec, tmp_path, monkeypatch, odd):
    result = await run(spec, fake_openai.text("Hi", usage=usage(odd, 20)), tmp_path / "run", monkeypatch)
    flow = result.summary["flows"]["rag_only"]
    assert (result.summary["status"], flow["turns"], flow["errors"]) == ("complete", 6, 0)
    assert (flow["input_tokens"], flow["output_tokens"], flow["cost_usd"]) == (None, 120, None)
    notices = [e for trace in result.traces.values() for e in trace.events if getattr(e, "name", "") == USAGE_UNKNOWN]
    assert len(notices) == 3, "once a conversation"
    for file in ("summary.json", "calls.jsonl", "turns.jsonl"):
        for line in (result.path / file).read_text().splitlines() if file.endswith("l") else [""]:
            json.loads(line or (result.path / file).read_text(), parse_constant=pytest.fail)


async def test_negative_usage_does_not_defeat_a_budget(spec, tmp_path, monkeypatch):
    response = fake_openai.text("Hi", usage=usage(-(10**9), 20))
    result = await run(spec, response, tmp_path / "run", monkeypatch, budget={"usd": 0.005})
    assert (result.summary["status"], result.summary["turns"]) == ("partial", 1)


async def test_a_budget_is_spent_by_honest_usage_and_not_before(spec, tmp_path, monkeypatch):
    response = fake_openai.text("Hi", usage=usage(1000, 100))  # $0.003 a call
    result = await run(spec, response, tmp_path / "run", monkeypatch, budget={"usd": 0.007})
    assert (result.summary["status"], result.summary["turns"]) == ("partial", 3), "a fourth would be past a tenth more"
    result = await run(spec, response, tmp_path / "run", monkeypatch, budget={"usd": 1})
    assert (result.summary["status"], result.summary["turns"]) == ("complete", 6)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


class Handing:
    """Flow that passes on a value that JSON cannot express."""

    name = "handing"

    async def respond(self, turn: Any, session: Any) -> al.Reply:
        session.notify("measured", value=float("nan"), limit=float("inf"))
        return al.Reply(text="done", data={"x": float("-inf"), "y": 1.5})


def test_numbers_that_json_cannot_hold_are_null_in_the_run_folder(spec, tmp_path):
    del spec["prices"]
    with al.Lab(model=Scripted([]), **spec | {"flows": [Handing()]}) as lab:
        result = lab.run_sync(out=tmp_path / "run")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines(result.path / "calls.jsonl")]
    assert [row["data"] for row in rows if row["kind"] == "notice"] == [{"value": None, "limit": None}] * 6
    turns = [json.loads(line, parse_constant=pytest.fail) for line in lines(result.path / "turns.jsonl")]
    assert [row["reply"]["data"] for row in turns] == [{"x": None, "y": 1.5}] * 6
    assert al.open_run(result.path).summary["status"] == "complete"


async def served(handler: Handler, ask: Callable[[str], Any]) -> Any:
    app = web.Application()
    app.router.add_post("/{anything:.*}", handler)
    started = web.AppRunner(app, shutdown_timeout=0.1)
    await started.setup()
    await web.TCPSite(started, "127.0.0.1", 0).start()
    try:
        return await ask(f"http://127.0.0.1:{started.addresses[0][1]}/v1")
    finally:
        await started.cleanup()


def model(base_url: str, **options: Any) -> Any:
    return openai.connect("any", base_url=base_url, api_key="key-of-a-test", **options)


async def complete(base_url: str, **options: Any) -> Any:
    adapter = model(base_url, **options)
    try:
        return await adapter.complete(HELLO, lambda piece: None)
    finally:
        await adapter.close()


def dripping(piece: bytes) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(0.02)

    return handle


@pytest.mark.parametrize(
    "piece", [b": keep-alive\n\n", b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n']
)
async def test_a_response_that_never_ends_ends_in_time(piece):
    started = time.monotonic()
    with pytest.raises(Retryable, match="in time"):
        await served(dripping(piece), lambda url: complete(url, timeout=0.3))
    assert time.monotonic() - started < 5


def sending(content: bytes, **headers: str) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=content, headers={"Content-Type": "text/event-stream", **headers})

    return handle


async def test_a_response_that_is_packed_unasked_is_refused_before_it_is_unpacked():
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(Retryable, match="compresses"):
        await served(sending(bomb, **{"Content-Encoding": "gzip"}), complete)


@pytest.mark.parametrize("line_end", [b"", b"\n\n"], ids=["one line", "many lines"])
async def test_a_response_has_a_maximum_size(monkeypatch, line_end):
    monkeypatch.setattr(openai_connection, "MAX_BYTES", 100_000)
    flood = (b": nothing" + line_end) * 50_000
    with pytest.raises(Retryable, match="more than 100000 bytes"):
        await served(sending(flood), complete)
    with pytest.raises(Retryable):
        await served(sending(flood), embed)


async def embed(base_url: str) -> Any:
    embedder = embedders.connect("e", base_url=base_url, api_key="key-of-a-test", timeout=5.0)
    try:
        return await embedder.embed(["x"])
    finally:
        await embedder.close()


async def test_a_redirect_to_another_server_is_not_followed_and_one_within_it_is():
    elsewhere: list[web.Request] = []

    async def catch(request: web.Request) -> web.Response:
        elsewhere.append(request)
        return web.Response()

    async def redirected(target: str) -> Any:
        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": target})

        return await served(redirect, complete)

    with pytest.raises(ModelError, match="redirects") as caught:
        await served(catch, redirected)
    assert not isinstance(caught.value, Retryable) and not elsewhere

    async def within(request: web.Request) -> web.Response:
        if request.path.endswith("/again"):
            delta = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
            return web.Response(text=f"data: {json.dumps(delta)}\n\n", content_type="text/event-stream")
        return web.Response(status=307, headers={"Location": f"{request.path}/again"})

    assert (await served(within, complete)).text == "Hi"


async def test_a_vector_with_what_is_no_number_is_an_error_to_retry():
    row = '{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'
    with pytest.raises(Retryable, match="no number"):
        await served(sending(row.encode(), **{"Content-Type": "application/json"}), embed)


@pytest.mark.parametrize("wanted, given", [(86_400.0, 0.0), (60.0, 60.0), (40.0, 60.0)])
async def test_a_provider_gets_a_minute_in_all_and_one_that_wants_more_none(monkeypatch, wanted, given):
    waited: list[float] = []
    monkeypatch.setattr(retries.asyncio, "sleep", lambda seconds: _given(waited.append(seconds)))

    async def refuse() -> None:
        raise RateLimited("later", "any", wanted)

    with pytest.raises(RateLimited, match="longest wait" if given == 0 else "later"):
        await retries.Attempts().run(refuse)
    assert sum(pause for pause in waited if pause > 10) == given


async def _given(value: Any) -> Any:
    return value


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_server_that_is_down_stops_the_run_once_and_it_can_be_resumed(tmp_path, own_home, caplog, concurrency):
    is_down = True

    def reply(request: Request) -> Any:
        return Retryable("connection refused", "any") if is_down else "Hi"

    data = write_set(tmp_path / "set", [{"id": f"c{n:02}", "turns": [{"user": "x"}]} for n in range(30)], DOCUMENTS)
    spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "flows": ["rag_only"], "scorers": ["answer"]}
    out = tmp_path / "run"
    with al.Lab(model=Scripted([reply], loop=True), **spec, concurrency=concurrency) as lab:
        result = lab.run_sync(out=out)
    stopped = [record for record in caplog.records if "the run stops here" in record.message]
    assert (result.summary["status"], result.summary["turns"], len(stopped)) == ("partial", 9, 1)
    is_down = False
    with al.Lab(model=Scripted([reply], loop=True), **spec, concurrency=concurrency) as lab:
        result = lab.run_sync(out=out, resume=True)
    assert (result.summary["status"], result.summary["turns"]) == ("complete", 30)
    assert result.summary["flows"]["rag_only"]["errors"] == 0, "failures of the provider are asked again"


def test_a_server_that_fails_now_and_then_stops_nothing(tmp_path, own_home):
    count = 0

    def reply(request: Request) -> Any:
        nonlocal count
        count += 1
        return (
            "Hi" if count % (4 * (player.MAX_CONSECUTIVE_UNREACHABLE - 1) + 1) == 0 else Retryable("overloaded", "any")
        )

    data = write_set(tmp_path / "set", [{"id": f"c{n:02}", "turns": [{"user": "x"}]} for n in range(25)], DOCUMENTS)
    with al.Lab(
        model=Scripted([reply], loop=True), datasets=[str(data)], embedder="hashing/hashing-64", flows=["rag_only"]
    ) as lab:
        result = lab.run_sync(out=tmp_path / "run")
    assert (result.summary["status"], result.summary["flows"]["rag_only"]["errors"]) == ("complete", 23)
    assert result.traces["rag_only", "c09", 0].totals().llm_calls == 1
