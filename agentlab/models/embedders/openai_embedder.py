"""Embeddings by OpenAI's protocol, on any server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

from agentlab.core.errors import ModelError, ServerFault, Unreachable
from agentlab.core.vectors import Vectors, unit_rows
from agentlab.models.openai_connection import Connection
from agentlab.models.provider import UNREADABLE, unreadable

_DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_BATCH = 256
# OpenAI refuses an input past 8,192 tokens; passages stay far below, a pasted question may not.
_MAX_CHARACTERS = 24_000


class OpenAIEmbedder:
    def __init__(self, provider: str, model: str, connection: Connection, dimensions: int | None) -> None:
        self.name = f"{provider}/{model}" if dimensions is None else f"{provider}/{model}@{dimensions}"
        self.dimensions = dimensions or _DIMENSIONS.get(model, 0)
        """0 until the first vectors are here, for a model whose size is not known."""
        self._model = model
        self._connection = connection
        self._wanted = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 rows of unit length, shape (len(texts), dimensions); raises the ModelErrors of a model."""
        rows: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            rows += await self._ask(texts[start : start + _BATCH])
        if rows:
            self.dimensions = len(rows[0])
        return unit_rows(np.array(rows, dtype=np.float32).reshape(len(rows), self.dimensions))

    async def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        # An empty input is refused with HTTP 400; a blank one is not.
        inputs = [text[:_MAX_CHARACTERS] or " " for text in texts]
        body: dict[str, Any] = {"model": self._model, "input": inputs, "encoding_format": "float"}
        if self._wanted is not None:
            body["dimensions"] = self._wanted
        try:
            async with asyncio.timeout(self._connection.timeout):
                text = await self._connection.ask(self.name, "/embeddings", body, _read_all)
            entries = sorted(json.loads(text)["data"], key=lambda row: row["index"])
            rows = [[float(n) for n in row["embedding"]] for row in entries]
        except TimeoutError:
            raise Unreachable("no answer in time", self.name) from None
        except UNREADABLE as problem:
            raise unreadable(problem, self.name) from None
        if not all(math.isfinite(number) for row in rows for number in row):
            raise ServerFault("the server sent a vector with what is no number", self.name)
        if len(rows) != len(inputs) or len({len(row) for row in rows}) != 1:
            raise ModelError(
                f"the server sent {len(rows)} vectors for {len(inputs)} texts, or of unequal length", self.name
            )
        return rows

    async def close(self) -> None:
        await self._connection.close()


async def _read_all(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])
