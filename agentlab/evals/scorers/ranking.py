"""Rank quality of retrieval: nDCG of the documents of a turn, and context precision of its passages.

nDCG uses gain 1 for a relevant document and the discount log2(rank + 1) (Jarvelin and Kekalainen, Cumulated Gain-Based
Evaluation of IR Techniques, 2002). The ideal order has all relevant documents first. Context precision takes, at each
passage of a relevant document, the share of such passages so far, and averages them (average precision over the
retrieved passages). A turn without a search, or without a relevant passage, scores 0 on both.
"""

from __future__ import annotations

from math import log2

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("retrieval_ndcg", "context_precision") if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    passages = [p.doc_id for event in outcome.events if isinstance(event, Search) for p in event.passages]
    documents = list(dict.fromkeys(passages))
    gained = sum(1 / log2(rank + 1) for rank, doc_id in enumerate(documents, 1) if doc_id in relevant)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, len(relevant) + 1))
    hits = [rank for rank, doc_id in enumerate(passages, 1) if doc_id in relevant]
    precision = sum(count / rank for count, rank in enumerate(hits, 1)) / len(hits) if hits else 0.0
    ranks = f"relevant at {', '.join(map(str, hits[:10]))}" if hits else "none relevant"
    reason = f"{ranks} of {len(passages)} passages"
    return {
        "retrieval_ndcg": Score(value=gained / ideal, reason=reason),
        "context_precision": Score(value=precision, reason=reason),
    }
