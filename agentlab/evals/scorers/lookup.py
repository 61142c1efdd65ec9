"""Did the turn go to the documents exactly when it needed to? What counts is what the flow did, whoever decided it."""

from __future__ import annotations

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("lookup_accuracy",) if turn.needs_document_lookup is not None else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    looked = any(isinstance(event, Search) for event in outcome.events)
    reason = f"{'searched' if looked else 'did not search'}, {'needed' if turn.needs_document_lookup else 'not needed'}"
    return {"lookup_accuracy": Score(value=float(looked == turn.needs_document_lookup), reason=reason)}
