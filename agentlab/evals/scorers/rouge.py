"""ROUGE-L of the reply and the nearest reference answer: F1 of the longest common subsequence of words, unstemmed.

Words are runs of a-z and 0-9. A turn without such a word in a reference answer is not graded.
"""

from __future__ import annotations

from functools import partial

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.overlap import rouge_l, rouge_words
from agentlab.evals.scorers.words import best_score, has_reference
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("rouge_l",) if has_reference(turn) and any(map(rouge_words, turn.reference_answers)) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = strip_markers(outcome.reply.text)
    return {"rouge_l": best_score(turn, partial(rouge_l, reply))}
