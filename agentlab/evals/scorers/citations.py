"""Precision and recall of the documents that a reply cites. A reply without citations has precision 0."""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("citation_precision", "citation_recall") if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    relevant = set(turn.relevant_doc_ids or ())
    cited = {citation.doc_id for citation in outcome.reply.citations}
    n_relevant = len(cited & relevant)
    reason = f"cites {', '.join(sorted(cited)) or 'nothing'}; {n_relevant} relevant"
    return {
        "citation_precision": Score(value=n_relevant / len(cited) if cited else 0.0, reason=reason),
        "citation_recall": Score(value=n_relevant / len(relevant), reason=reason),
    }
