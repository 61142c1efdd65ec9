"""Small doubles: an embedder and an index in a few lines, and a session over a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from agentlab.core.messages import Passage
from agentlab.core.trace import Trace
from agentlab.models.scripted import Scripted
from agentlab.session.session import Session
from agentlab.session.traced import Bounds, Has
from agentlab.tools.documents import lookup_documents
from agentlab.wire.gateway import Gateway
from agentlab.wire.queue import QueuedEmbedder, QueuedModel
from agentlab.wire.recorder import Recorder
from agentlab.wire.retries import RETRIES


@dataclass(frozen=True)
class Doc:
    doc_id: str
    title: str
    text: str = ""


class FlatEmbedder:
    name = "flat"
    dimensions = 2

    def __init__(self) -> None:
        self.received: list[str] = []

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.received.extend(texts)
        return np.tile(np.array([1.0, 0.0], dtype=np.float32), (len(texts), 1))


class ListIndex:
    """Every document is one passage; a search returns them in order."""

    name = "list"

    def __init__(self, *documents: Doc) -> None:
        self.documents = documents
        self.embedder = FlatEmbedder()

    async def search(
        self, query: str, vector: Any, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        chosen = [d for d in self.documents if doc_ids is None or d.doc_id in doc_ids]
        return tuple(
            Passage(
                id=f"{d.doc_id}#0", doc_id=d.doc_id, title=d.title, text=d.text, start=0, end=len(d.text), score=1.0
            )
            for d in chosen[:top_k]
        )


OFFSIDE = Doc("law-11", "Offside", "A player level with the second-last opponent is onside.")
BALL = Doc("law-2", "The ball", "The ball is round and weighs between 410 and 450 grams.")


def gateway_to(
    model: Any, trace: Trace, embedder: Any = None, recorder: Recorder | None = None, endpoint: str = "", **options: Any
) -> Gateway:
    """Return a gateway that records into `trace` and calls doubles without waiting."""
    embedder = embedder or FlatEmbedder()
    queued = QueuedEmbedder(embedder.name, "", lambda: embedder)
    return Gateway(
        recorder or Recorder(),
        QueuedModel(model.name, endpoint, lambda: model),
        queued,
        flow=trace.flow,
        conversation=trace.conversation,
        epoch=trace.epoch,
        **options,
    )


def session_over(
    flow: Any,
    model: Scripted,
    index: ListIndex | None = None,
    tools: Sequence[Any] | None = None,
    memory: Any = None,
    retries: int = RETRIES,
    **settings: Any,
) -> Session:
    """A session as the Lab would make it for `flow`, with a scripted model and a flat index."""
    own = [lookup_documents] if "lookup_documents" in getattr(flow, "TOOLS", ()) and index is not None else []
    trace = Trace("test", "conversation")
    made = flow.Settings(**settings) if hasattr(flow, "Settings") else None
    has = Has(
        settings=made,
        prompts=getattr(flow, "PROMPTS", {}),
        tools={tool.spec.name: tool for tool in (own if tools is None else tools)},
        index=index,
        memory=memory,
        bounds=Bounds(tokens=getattr(made, "token_limit", None)),
    )
    embedder = (memory or index).embedder if memory or index else None
    gateway = gateway_to(model, trace, embedder, retries=retries)
    return Session(trace=trace, gateway=gateway, now=datetime(2026, 1, 1), has=has)
