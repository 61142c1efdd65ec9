"""Recall, ranks and precision of what a turn retrieved; the flow chooses how much.

Recall is the share of the relevant documents among the retrieved ones. The reciprocal rank is 1 / rank of the first
relevant document. nDCG of the documents uses gain 1 for a relevant one and the discount log2(rank + 1) (Jarvelin and
Kekalainen, Cumulated Gain-Based Evaluation of IR Techniques, 2002). The ideal order has all relevant documents first.
Context precision takes, at each passage of a relevant document, the share of such passages so far, and averages them
(average precision over the retrieved passages). A turn without a search, or without a relevant passage, scores 0.
"""

from __future__ import annotations

from math import log2

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome

_METRICS = ("retrieval_recall", "retrieval_mrr", "retrieval_ndcg", "context_precision")


def metrics(turn: Turn) -> tuple[str, ...]:
    return _METRICS if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    passages = [p.doc_id for event in outcome.events if isinstance(event, Search) for p in event.passages]
    documents = list(dict.fromkeys(passages))
    ranks, hits = _ranks(documents, relevant), _ranks(passages, relevant)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, len(relevant) + 1))
    precision = sum(count / rank for count, rank in enumerate(hits, 1)) / len(hits) if hits else 0.0
    gained = sum(1 / log2(rank + 1) for rank in ranks)
    values = (len(ranks) / len(relevant), 1 / ranks[0] if ranks else 0.0, gained / ideal, precision)
    by_document = f"{len(ranks)} of {len(relevant)} relevant among {len(documents)} documents"
    by_passage = f"relevant at {', '.join(map(str, hits[:10]))}" if hits else "none relevant"
    reasons = (by_document, by_document, *[f"{by_passage} of {len(passages)} passages"] * 2)
    return {name: Score(value=v, reason=why) for name, v, why in zip(_METRICS, values, reasons, strict=True)}


def _ranks(doc_ids: list[str], relevant: set[str]) -> list[int]:
    """Return the ranks, from 1, of relevant documents in a list of ids."""
    return [rank for rank, doc_id in enumerate(doc_ids, 1) if doc_id in relevant]
