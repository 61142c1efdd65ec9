"""Cosine similarity of the reply and the nearest reference answer, by the run's embedder, clipped to 0..1."""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.words import has_reference
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("semantic_similarity",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = strip_markers(outcome.reply.text)
    if not reply.strip():
        return {"semantic_similarity": Score(value=0.0, reason="the reply is empty")}
    vectors = outcome.embed([reply, *turn.reference_answers])
    similarities = vectors[1:] @ vectors[0]
    best = int(similarities.argmax())
    reason = f"nearest reference: {turn.reference_answers[best][:120]}"
    return {"semantic_similarity": Score(value=min(1.0, max(0.0, float(similarities[best]))), reason=reason)}
