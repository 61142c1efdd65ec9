"""Token F1 and exact match of the reply against reference answers, by the rules of SQuAD; the best alternative counts.

Citation markers such as [2] are taken out first; `words.py` says how two texts are compared.
"""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.words import f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_f1", "exact_match") if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    said = normalise(strip_markers(outcome.reply.text))
    references = [normalise(answer) for answer in turn.reference_answers]
    values = [f1(said, reference) for reference in references]
    best = max(range(len(values)), key=values.__getitem__)
    near = turn.reference_answers[best]
    return {
        "answer_f1": Score(value=values[best], reason=f"nearest reference: {near[:120]}"),
        "exact_match": Score(value=float(said in references), reason=f"nearest reference: {near[:120]}"),
    }
