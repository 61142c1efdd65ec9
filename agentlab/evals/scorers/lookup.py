"""Accuracy of the decision to search: 1 if the flow searched the documents exactly when the turn needed them."""

from __future__ import annotations

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("lookup_accuracy",) if turn.needs_document_lookup is not None else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    searched = any(isinstance(event, Search) for event in outcome.events)
    needed = bool(turn.needs_document_lookup)
    reason = f"{'searched' if searched else 'did not search'}, {'needed' if needed else 'not needed'}"
    return {"lookup_accuracy": Score(value=float(searched == needed), reason=reason)}
