"""How well the passages a turn retrieved are ranked: nDCG of its documents, and context precision of its passages.

nDCG with gain 1 for a relevant document and the discount log2(rank + 1) (Jarvelin and Kekalainen, Cumulated Gain-Based
Evaluation of IR Techniques, 2002), against the best order of as many as there are. Context precision is the mean, over
the passages of relevant documents, of the share of such passages up to each (average precision over what was found).
A turn that searched nothing, or found nothing relevant, scores 0 on both.
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
    precise = sum(found / rank for found, rank in enumerate(hits, 1)) / len(hits) if hits else 0.0
    where = f"relevant at {', '.join(map(str, hits[:10]))}" if hits else "none relevant"
    reason = f"{where} of {len(passages)} passages"
    return {
        "retrieval_ndcg": Score(value=gained / ideal, reason=reason),
        "context_precision": Score(value=precise, reason=reason),
    }
