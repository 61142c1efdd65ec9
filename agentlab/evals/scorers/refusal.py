"""Does the reply decline where the documents hold no answer, and answer where they do?

`refusal_accuracy` is graded on unanswerable turns, `answered` on answerable ones: a flow that always declines is perfect
on the first and worthless on the second, so they must be read together.
"""

from __future__ import annotations

import re

from agentlab.evals.datasets import Turn
from agentlab.evals.scorers import Outcome, Score

_SUBJECT = r"(documents?|passages?|context|text|sources?|rules?|information|sections?|search|results?)"
_NOT = r"(do(es)?|did|is|are|was|were|can|could|has|have|had)(n't|n’t| not)"
_DECLINES = re.compile(
    rf"\b{_SUBJECT}\b[^.]{{0,60}}\b{_NOT}\b[^.]{{0,40}}\b(say|mention|specif|contain|provide|state|include|cover|answer|"
    rf"hold|address|explain|tell|give|indicate|available|found|information|any)"
    rf"|\bnot (mentioned|specified|stated|provided|covered|available|given|found|included|addressed|in the)\b"
    rf"|\bno (information|mention|answer|relevant|details?|passages?|sections?)\b"
    rf"|\b(i|we) (do|can|could)(n't|n’t|not| not) (know|answer|find|say|tell|provide|determine|have)"
    rf"|\bi('m| am|’m) (not sure|unable|sorry)\b|\bunanswerable\b|\bcannot be (answered|determined)\b",
    re.IGNORECASE,
)


def declines(text: str) -> bool:
    """True for an empty reply and for one that says the answer is not there."""
    return not text.strip() or _DECLINES.search(text) is not None


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.unanswerable:
        return ("refusal_accuracy",)
    return ("answered",) if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: Outcome) -> dict[str, Score]:
    declined = declines(outcome.reply.text)
    reason = "the reply declines" if declined else "the reply answers"
    if turn.unanswerable:
        return {"refusal_accuracy": Score(value=float(declined), reason=reason)}
    return {"answered": Score(value=float(not declined), reason=reason)}
