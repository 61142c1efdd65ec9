"""Recall and reciprocal rank of the documents that a turn retrieved; the flow chooses how many.

Recall is the share of the relevant documents among the retrieved ones. The reciprocal rank is 1 / rank of the first
relevant document. A turn without a search scores 0 on both.
"""

from __future__ import annotations

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("retrieval_recall", "retrieval_mrr") if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    documents = list(dict.fromkeys(p.doc_id for e in outcome.events if isinstance(e, Search) for p in e.passages))
    hits = [rank for rank, doc_id in enumerate(documents, 1) if doc_id in relevant]
    reason = f"{len(hits)} of {len(relevant)} relevant among {len(documents)} documents"
    return {
        "retrieval_recall": Score(value=len(hits) / len(relevant), reason=reason),
        "retrieval_mrr": Score(value=1 / hits[0] if hits else 0.0, reason=reason),
    }
