"""Embeddings from a server: in order, in batches, with keys in turn and failures of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentlab.core.errors import ConfigError, ModelError, RateLimited, ServerFault, Unreachable
from agentlab.models.embedders import openai
from agentlab.wire.queue import QueuedEmbedder


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[str, Any]]]:
    """An embeddings server: vectors out of order, and the failures that the text asks for."""
    requests: list[dict[str, Any]] = []

    async def embeddings(request: web.Request) -> web.Response:
        body = await request.json()
        requests.append(body)
        first = body["input"][0]
        key = request.headers["Authorization"].removeprefix("Bearer ")
        if first.startswith("only ") and key not in first:
            return web.json_response({"error": {"message": f"your key {key} is not welcome"}}, status=401)
        if first.startswith("HTTP "):
            return web.json_response({"error": {"message": "no"}}, status=int(first[5:]))
        size = body.get("dimensions", 3)
        data = [
            {"object": "embedding", "index": n, "embedding": [float(len(text)), *[1.0] * (size - 1)]}
            for n, text in enumerate(body["input"])
        ]
        data = data[1:] if first == "too few" else data[::-1]
        return web.json_response({"object": "list", "model": "m", "data": data, "usage": {}})

    app = web.Application(client_max_size=10**8)
    app.router.add_post("/v1/embeddings", embeddings)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    yield requests
    await runner.cleanup()


async def test_openai_keeps_the_order_and_batches(server: list[dict[str, Any]]) -> None:
    embedder = openai.connect("some-model")
    try:
        rows = await embedder.embed(["", *("x" * n for n in range(1, 300))])
        assert embedder.dimensions == 3
        assert rows.shape == (300, 3)
        assert (rows[:, 0] / rows[:, 1]) == pytest.approx([1, *range(1, 300)], rel=0.01)
        assert [len(request["input"]) for request in server] == [256, 44]
        assert server[0]["input"][0] == " "
        assert "dimensions" not in server[0]
        await embedder.embed(["x" * 100_000])
        assert len(server[-1]["input"][0]) == 24_000
    finally:
        await embedder.close()


async def test_openai_asks_for_dimensions_and_is_then_another_embedder(server: list[dict[str, Any]]) -> None:
    embedder = openai.connect("m", dimensions=7)
    assert (await embedder.embed(["a"])).shape == (1, 7)
    assert embedder.name == "openai/m@7"
    await embedder.close()


@pytest.mark.parametrize(
    ("text", "kind"), [("HTTP 429", RateLimited), ("HTTP 503", ServerFault), ("too few", ModelError)]
)
async def test_openai_failures_are_ours_and_not_retried(
    server: list[dict[str, Any]], text: str, kind: type[ModelError]
) -> None:
    embedder = openai.connect("m")
    with pytest.raises(kind):
        await embedder.embed([text, "b"])
    assert len(server) == 1
    await embedder.close()


async def test_openai_takes_its_keys_in_turn_and_no_error_quotes_one(
    server: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENTLAB_KEYS", str(tmp_path / "keys.json"))
    (tmp_path / "keys.json").write_text('{"openai": ["gsk_the_first_one", "gsk_the_second_one"]}')
    queued = QueuedEmbedder("openai/m", "compatible", lambda: openai.connect("m"))
    assert (await queued.embed(["only gsk_the_second_one"])).shape == (1, 3)
    assert len(server) == 2
    with pytest.raises(ModelError, match="your key <key> is not welcome") as refused:
        await queued.embed(["only somebody else's"])
    assert refused.value.__cause__ is None and refused.value.__context__ is None
    await queued.close()


async def test_openai_without_key_or_server() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        openai.connect("m")
    with pytest.raises(ConfigError, match="not an http"):
        openai.connect("m", base_url="localhost:80")
    embedder = openai.connect("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(Unreachable):
        await embedder.embed(["a"])
    await embedder.close()
