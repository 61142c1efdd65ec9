"""Token F1 and exact match of the reply and its nearest reference answer, by the rules of SQuAD.

Citation markers such as [2] are removed first. `words.py` defines how two texts are compared.
"""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.words import best_score, f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_f1", "exact_match") if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = normalise(strip_markers(outcome.reply.text))
    answer_f1 = best_score(turn, lambda reference: f1(reply, normalise(reference)))
    exact = reply in map(normalise, turn.reference_answers)
    return {"answer_f1": answer_f1, "exact_match": Score(value=float(exact), reason=answer_f1.reason)}
