"""Search by words (BM25): no embedder."""

from __future__ import annotations

from agentlab.core.protocols import Index
from agentlab.knowledge.retriever import Corpus


async def open_index(corpus: Corpus, settings: None) -> Index:
    return await corpus.index("bm25")
