"""Recall@k and reciprocal rank of the documents a turn retrieved, k being as many as the flow chose to retrieve.

Recall is the share of the relevant documents that were retrieved at all; the reciprocal rank is that of the first
relevant one in the order they were found. A turn that searched nothing scores 0 on both.
"""

from __future__ import annotations

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("retrieval_recall", "retrieval_mrr") if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    found = list(dict.fromkeys(p.doc_id for e in outcome.events if isinstance(e, Search) for p in e.passages))
    hits = [rank for rank, doc_id in enumerate(found, 1) if doc_id in relevant]
    reason = f"{len(hits)} of {len(relevant)} relevant among {len(found)} documents"
    return {
        "retrieval_recall": Score(value=len(hits) / len(relevant), reason=reason),
        "retrieval_mrr": Score(value=1 / hits[0] if hits else 0.0, reason=reason),
    }
