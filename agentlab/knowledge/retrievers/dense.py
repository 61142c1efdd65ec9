"""Search by meaning: cosine similarity of the query's vector and those of the passages."""

from __future__ import annotations

from agentlab.core.protocols import Index
from agentlab.knowledge.retriever import Corpus


async def open_index(corpus: Corpus, settings: None) -> Index:
    return await corpus.index("dense")
