"""An embedder that counts its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentlab.models.embedders import hashing


class Counting:
    """An embedder that records its requests."""

    name = "counting/1"
    dimensions = 8

    def __init__(self) -> None:
        self.received: list[str] = []
        self._inner = hashing.connect("hashing-8")

    async def embed(self, texts: Sequence[str]) -> Any:
        self.received += texts
        return await self._inner.embed(texts)
