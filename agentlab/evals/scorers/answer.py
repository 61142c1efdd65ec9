"""Token F1 and exact match of the reply against reference answers, by the rules of SQuAD; the best alternative counts.

Normalisation, F1 and exact match as in Rajpurkar et al., SQuAD (arXiv 1606.05250, section 6.1): lower case, no
punctuation, no articles. Citation markers such as [2] are taken out first.
"""

from __future__ import annotations

import re
import string
from collections import Counter

from agentlab.evals.datasets import Turn
from agentlab.evals.scorers import Outcome, Score
from agentlab.knowledge.citations import strip_markers

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def has_reference(turn: Turn) -> bool:
    return bool(turn.reference_answers) and not turn.unanswerable


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_f1", "exact_match") if has_reference(turn) else ()


def score(turn: Turn, outcome: Outcome) -> dict[str, Score]:
    said = normalise(strip_markers(outcome.reply.text))
    references = [normalise(answer) for answer in turn.reference_answers]
    values = [f1(said, reference) for reference in references]
    best = max(range(len(values)), key=values.__getitem__)
    near = turn.reference_answers[best]
    return {
        "answer_f1": Score(value=values[best], reason=f"nearest reference: {near[:120]}"),
        "exact_match": Score(value=float(said in references), reason=f"nearest reference: {near[:120]}"),
    }


def normalise(text: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split())


def f1(said: str, reference: str) -> float:
    """Harmonic mean of token precision and recall of two normalised texts; two empty texts agree."""
    ours, theirs = said.split(), reference.split()
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
