"""ROUGE-L of the reply and the nearest reference answer: F1 of the longest common subsequence of words, unstemmed."""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.overlap import rouge_l
from agentlab.evals.scorers.words import has_reference
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("rouge_l",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    said = strip_markers(outcome.reply.text)
    values = [rouge_l(said, reference) for reference in turn.reference_answers]
    best = max(range(len(values)), key=values.__getitem__)
    return {"rouge_l": Score(value=values[best], reason=f"nearest reference: {turn.reference_answers[best][:120]}")}
