"""Precision and recall of the documents a reply cites. Without citations precision is 0 where some were due."""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("citation_precision", "citation_recall") if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    cited = {citation.doc_id for citation in outcome.reply.citations}
    right = len(cited & relevant)
    reason = f"cites {', '.join(sorted(cited)) or 'nothing'}; {right} of it relevant"
    return {
        "citation_precision": Score(value=right / len(cited) if cited else 0.0, reason=reason),
        "citation_recall": Score(value=right / len(relevant), reason=reason),
    }
