"""Small corpora, searches of their index, and processes that build it at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Passage
from agentlab.data.documents import Document
from agentlab.knowledge.index import DocumentIndex, Method, open_index
from agentlab.models.embedders import hashing

METHODS: tuple[Method, ...] = ("dense", "bm25", "hybrid")
EMBEDDER = hashing.connect("hashing-256")


def document(doc_id: str, text: str, title: str = "") -> Document:
    return Document(doc_id=doc_id, title=title, text=text)


SMALL = (
    document("ball", "The ball is round. It weighs 410 grams.", "The ball"),
    document("time", "A match lasts two halves. Each half takes 45 minutes.", "Duration"),
    document("twin#0", "Green grass grows slowly."),
    document("twin", "Green grass grows slowly."),
    document("blank", " \n "),
    document("cards", "The referee shows a red card. The referee shows a yellow card. A card is shown once."),
)


async def search(index: DocumentIndex, query: str, **options: Any) -> tuple[Passage, ...]:
    vector = None if index.embedder is None else (await index.embedder.embed([query]))[0]
    return await index.search(query, vector, **options)


class CountingEmbedder:
    """An embedder that counts its texts, and fails after `fails_after` of them."""

    name = "asked/1"
    dimensions = 256

    def __init__(self, fails_after: int = 10**9) -> None:
        self.texts: list[str] = []
        self._fails_after = fails_after

    async def embed(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        if len(self.texts) > self._fails_after:
            raise ConfigError("the embedder broke")
        return await EMBEDDER.embed(texts)


MANY = tuple(document(f"d{n}", f"Document number {n} is about item {n * n}. " * 3) for n in range(600))


def die_while_building(folder: str) -> None:
    class Deadly(CountingEmbedder):
        async def embed(self, texts: Sequence[str]) -> Any:
            if len(self.texts) > 250:
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().embed(texts)

    asyncio.run(open_index(MANY, Deadly(), folder=Path(folder), method="hybrid"))


async def open_and_search_here(folder: str) -> tuple[str, ...]:
    index = await open_index(MANY, CountingEmbedder(), folder=Path(folder), method="hybrid")
    hits = await search(index, "number 12 about item 144", top_k=3)
    return tuple(passage.id for passage in hits)


def open_and_search(folder: str, answers: multiprocessing.Queue[tuple[str, ...]]) -> None:
    answers.put(asyncio.run(open_and_search_here(folder)))
