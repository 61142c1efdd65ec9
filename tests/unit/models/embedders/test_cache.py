"""The cache of vectors on disk: asked once, shared, and clear about damage."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
from pathlib import Path

import pytest

from agentlab.core.errors import ConfigError
from agentlab.models.embedders.cache import CachedEmbedder
from support.embedders import Counting, fill_cache


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
    with pytest.raises(ConfigError, match=r"the embedding cache cannot be used .* mend its folder"):
        await CachedEmbedder(Counting(), tmp_path / "file").embed(["a"])


async def test_who_comes_while_another_makes_the_cache_waits_for_it(tmp_path: Path) -> None:
    maker = sqlite3.connect(tmp_path / "embeddings.sqlite", isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    maker.execute("CREATE TABLE half_made (x)")
    done = threading.Timer(0.2, lambda: maker.execute("COMMIT"))
    done.start()
    inner = Counting()
    await CachedEmbedder(inner, tmp_path).embed(["a"])
    done.join()
    maker.close()
    await CachedEmbedder(inner, tmp_path).embed(["a"])
    assert inner.asked == ["a"]


@pytest.mark.slow
async def test_processes_and_tasks_share_one_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=fill_cache, args=(str(tmp_path), 10 * n)) for n in range(2)]
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
