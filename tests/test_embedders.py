"""Every embedder by the same promises: unit rows, float16 values, no dependence on the batch; and the cache on disk."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from agentlab.core.errors import (
    BadRequest,
    ConfigError,
    MissingExtra,
    ModelError,
    RateLimited,
    ServerFault,
    Unreachable,
)
from agentlab.core.protocols import Embedder
from agentlab.models import weights
from agentlab.models.embedders import hashing, local, openai, sentence_transformers
from agentlab.models.embedders.cache import CachedEmbedder
from agentlab.wire.queue import QueuedEmbedder

TEXTS = ["The ball is round.", "A match lasts 90 minutes.", "", "The ball is round.", "\ud800 x", "word " * 3000]


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    if not weights.is_present("all-minilm-l6-v2"):
        pytest.skip("the weights of all-minilm-l6-v2 are not here: agentlab pull all-minilm-l6-v2")
    return local.connect("all-minilm-l6-v2")


@pytest.fixture(params=["hashing", "local"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "local":
        connected: Embedder = request.getfixturevalue("minilm")
        return connected
    return hashing.connect("hashing-64")


async def test_rows_are_unit_float16_and_independent_of_the_batch(embedder: Embedder) -> None:
    rows = await embedder.embed(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dimensions)
    assert rows.dtype == np.float32
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3
    assert (rows == rows.astype(np.float16)).all()
    assert (rows[0] == rows[3]).all()
    for text, row in zip(TEXTS, rows, strict=True):
        assert ((await embedder.embed([text]))[0] == row).all()
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)


async def test_minilm_knows_meaning_where_words_differ(minilm: Embedder) -> None:
    query, near, far = await minilm.embed(
        ["How do I delete a file?", "Use os.remove to get rid of it.", "Tyres squealed on the wet road."]
    )
    assert query @ near > query @ far + 0.1


async def test_minilm_takes_many_callers_and_ten_megabytes(minilm: Embedder) -> None:
    alone = (await minilm.embed(["one"]))[0]
    began = time.perf_counter()
    (long,), *short = await asyncio.gather(
        minilm.embed(["word " * 2_000_000]), *(minilm.embed(["one"]) for _ in range(8))
    )
    assert time.perf_counter() - began < 20
    assert all((row[0] == alone).all() for row in short)
    assert (long == (await minilm.embed(["word " * 4000]))[0]).all()


async def test_hashing_is_word_overlap() -> None:
    embedder = hashing.connect("hashing-512")
    rows = await embedder.embed(["the ball is round", "round is THE ball", "nothing shared here"])
    assert rows[0] @ rows[1] == pytest.approx(1, abs=1e-3)
    assert rows[0] @ rows[2] == 0
    assert embedder.name == "hashing/hashing-512"


@pytest.mark.parametrize("name", ["hashing", "hashing-0", "hashing-99999", "hashing-x"])
def test_senseless_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="hashing-256"):
        hashing.connect(name)
    with pytest.raises(ConfigError, match="all-minilm-l6-v2"):
        local.connect(name)


# -- the cache ---------------------------------------------------------------------------------------------------------


class Counting:
    """An embedder that remembers what it was asked."""

    name = "counting/1"
    dimensions = 8

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._inner = hashing.connect("hashing-8")

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return await self._inner.embed(texts)


async def test_a_text_is_embedded_once(tmp_path: Path) -> None:
    inner = Counting()
    rows = await CachedEmbedder(inner, tmp_path).embed(["a", "b", "a", "\ud800"])
    assert inner.asked == ["a", "b", "\ud800"]
    again = CachedEmbedder(inner, tmp_path)
    assert (await again.embed(["\ud800", "b", "c", "a"]) == (await inner.embed(["\ud800", "b", "c", "a"]))).all()
    assert inner.asked.count("a") == 2, "once by the cache, once by this test"
    assert (rows[0] == rows[2]).all()
    assert (again.name, again.dimensions) == ("counting/1", 8)
    assert (await again.embed([])).shape == (0, 8)


async def test_embedders_do_not_share_vectors(tmp_path: Path) -> None:
    inner, other = Counting(), Counting()
    other.name = "counting/2"
    await CachedEmbedder(inner, tmp_path).embed(["a"])
    await CachedEmbedder(other, tmp_path).embed(["a"])
    assert other.asked == ["a"]


async def test_a_spoilt_cache_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "embeddings.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"embeddings\.sqlite: the embedding cache cannot be used .*delete it"):
        await CachedEmbedder(Counting(), tmp_path).embed(["a"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot open the embedding cache"):
        await CachedEmbedder(Counting(), tmp_path / "file").embed(["a"])


def _fill(folder: str, start: int) -> None:
    embedder = CachedEmbedder(hashing.connect("hashing-8"), Path(folder))

    async def run() -> None:
        await asyncio.gather(*(embedder.embed([f"text {n}" for n in range(start, start + 20)]) for _ in range(5)))

    asyncio.run(run())


async def test_processes_and_tasks_share_one_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(str(tmp_path), 10 * n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join)
    assert [worker.exitcode for worker in workers] == [0] * 2
    inner = Counting()
    inner.name = "hashing/hashing-8"
    rows = await CachedEmbedder(inner, tmp_path).embed([f"text {n}" for n in range(30)])
    assert inner.asked == []
    assert (rows == await inner.embed([f"text {n}" for n in range(30)])).all()


# -- a server ----------------------------------------------------------------------------------------------------------


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
    assert (await queued.ask("only gsk_the_second_one")).result.shape == (3,)
    assert len(server) == 2
    with pytest.raises(ModelError, match="your key <key> is not welcome") as refused:
        await queued.ask("only somebody else's")
    assert refused.value.__cause__ is None
    await queued.close()


class Flaky(Counting):
    """Fails as often as it is told to."""

    def __init__(self, *failures: ModelError) -> None:
        super().__init__()
        self.failures = list(failures)

    async def embed(self, texts: Sequence[str]) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return await super().embed(texts)


async def test_what_may_go_through_later_is_embedded_again_and_the_pauses_are_no_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentlab.wire.retries.BACK_OFF", 0.05)
    embedder = Flaky(ServerFault("busy"), RateLimited("slowly"))
    queued = QueuedEmbedder("counting/1", "", lambda: embedder)
    timed = await queued.ask("a")
    assert embedder.asked == ["a"]
    assert timed.seconds < 0.05 < timed.waited
    embedder.failures = [ServerFault("busy")] * 3
    assert (await queued.embed(["b"])).shape == (1, 8)


@pytest.mark.parametrize(
    ("failures", "kind"), [([ServerFault("busy")] * 4, ServerFault), ([BadRequest("never")], BadRequest)]
)
async def test_an_embedder_is_not_asked_for_ever_nor_in_vain(
    failures: list[ModelError], kind: type[ModelError]
) -> None:
    embedder = Flaky(*failures)
    with pytest.raises(kind):
        await QueuedEmbedder("counting/1", "", lambda: embedder).ask("a")
    assert embedder.asked == embedder.failures == []


async def test_openai_without_key_or_server() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        openai.connect("m")
    with pytest.raises(ConfigError, match="not an http"):
        openai.connect("m", base_url="localhost:80")
    embedder = openai.connect("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(Unreachable):
        await embedder.embed(["a"])
    await embedder.close()


# -- sentence-transformers ---------------------------------------------------------------------------------------------


async def test_sentence_transformers_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"\[sentence-transformers\]"):
        sentence_transformers.connect("any")


async def test_sentence_transformers_by_its_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    class SentenceTransformer:
        def __init__(self, name: str, device: str) -> None:
            if name == "nowhere":
                raise OSError("nowhere is not a local folder\nand not a model")
            self.seen = (name, device)

        def encode(self, texts: list[str], batch_size: int, show_progress_bar: bool) -> Any:
            return np.array([[len(text), 1.0, 0.1] for text in texts], dtype=np.float32)

    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    embedder = sentence_transformers.connect("a/b")
    assert (embedder.name, embedder.dimensions) == ("sentence_transformers/a/b", 3)
    rows = await embedder.embed(["x" * n for n in range(70)])
    assert rows.shape == (70, 3)
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3
    assert (await embedder.embed([])).shape == (0, 3)
    with pytest.raises(
        ConfigError, match=r"'sentence_transformers/nowhere' cannot be loaded: nowhere is not a local folder$"
    ):
        sentence_transformers.connect("nowhere")


def test_importing_the_rooms_loads_no_sdk() -> None:
    code = (
        "import sys, json\n"
        "import agentlab.knowledge.index, agentlab.data.documents, agentlab.models.embedders.cache\n"
        "from agentlab.models.embedders import hashing, local, openai, sentence_transformers\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert not {"chromadb", "onnxruntime", "tokenizers", "bm25s", "bs4", "openai", "sentence_transformers"} & set(
        loaded
    )
