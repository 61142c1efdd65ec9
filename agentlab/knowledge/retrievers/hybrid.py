"""Search by meaning and words: the mean of both scores, each scaled to 0..1."""

from __future__ import annotations

from agentlab.core.protocols import Index
from agentlab.knowledge.retriever import Corpus


async def open_index(corpus: Corpus, settings: None) -> Index:
    return await corpus.index("hybrid")
