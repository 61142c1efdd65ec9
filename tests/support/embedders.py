"""An embedder that counts what it is asked, and a process that fills a cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlab.models.embedders import hashing
from agentlab.models.embedders.cache import CachedEmbedder


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


def fill_cache(folder: str, start: int) -> None:
    embedder = CachedEmbedder(hashing.connect("hashing-8"), Path(folder))

    async def run() -> None:
        await asyncio.gather(*(embedder.embed([f"text {n}" for n in range(start, start + 20)]) for _ in range(5)))

    asyncio.run(run())
