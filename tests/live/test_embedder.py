"""The real sentence embedder represents meaning, and serves many callers and long texts."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentlab.core.protocols import Embedder

pytestmark = pytest.mark.real_model


async def test_minilm_knows_meaning_where_words_differ(minilm: Embedder) -> None:
    query, near, far = await minilm.embed(
        ["How do I delete a file?", "Use os.remove to get rid of it.", "Tyres squealed on the wet road."]
    )
    assert query @ near > query @ far + 0.1


async def test_minilm_takes_many_callers_and_ten_megabytes(minilm: Embedder) -> None:
    alone = (await minilm.embed(["one"]))[0]
    started = time.perf_counter()
    (long,), *short = await asyncio.gather(
        minilm.embed(["word " * 2_000_000]), *(minilm.embed(["one"]) for _ in range(8))
    )
    assert time.perf_counter() - started < 20
    assert all((row[0] == alone).all() for row in short)
    assert (long == (await minilm.embed(["word " * 4000]))[0]).all()
