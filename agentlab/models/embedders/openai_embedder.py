"""Embeddings by OpenAI's protocol, on any server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentlab.core.errors import ModelError, ServerFault
from agentlab.core.vectors import Vectors, unit_rows
from agentlab.models.openai_connection import STREAMED, Connection, read_pieces
from agentlab.models.provider import checked_response

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
        parts = [await self._ask(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        if not parts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        self.dimensions = parts[0].shape[1]
        return unit_rows(np.concatenate(parts))

    async def _ask(self, texts: Sequence[str]) -> Vectors:
        # An empty input is refused with HTTP 400; a blank one is not.
        inputs = [text[:_MAX_CHARACTERS] or " " for text in texts]
        body: dict[str, Any] = {"model": self._model, "input": inputs, "encoding_format": "float"}
        if self._wanted is not None:
            body["dimensions"] = self._wanted
        with checked_response(self.name):
            async with (
                asyncio.timeout(self._connection.timeout),
                self._connection.open(self.name, body) as client,
                read_pieces(await client.post("/embeddings", body=body, **STREAMED)) as pieces,
            ):
                text = b"".join([piece async for piece in pieces])
            entries = sorted(json.loads(text)["data"], key=lambda row: row["index"])
            rows = np.array([row["embedding"] for row in entries], dtype=np.float32)
        if not np.isfinite(rows).all():
            raise ServerFault("the server sent a vector with what is no number", self.name)
        if rows.ndim != 2 or len(rows) != len(inputs):
            raise ModelError(f"the server sent {len(rows)} vectors for {len(inputs)} texts", self.name)
        return rows

    async def close(self) -> None:
        await self._connection.close()
