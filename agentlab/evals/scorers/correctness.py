"""Is the reply right, whatever words stand around it? To be written."""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.words import has_reference, normalise


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_correctness",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    said = f" {normalise(outcome.reply.text)} "
    right = any(f" {normalise(reference)} " in said for reference in turn.reference_answers)
    return {"answer_correctness": Score(value=float(right), reason="")}
