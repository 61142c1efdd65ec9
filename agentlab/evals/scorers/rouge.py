"""ROUGE-L of the reply and the nearest reference answer: F1 of the longest common subsequence of words, unstemmed."""

from __future__ import annotations

from functools import partial

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.overlap import rouge_l
from agentlab.evals.scorers.words import best_score, has_reference
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("rouge_l",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = strip_markers(outcome.reply.text)
    return {"rouge_l": best_score(turn, partial(rouge_l, reply))}
