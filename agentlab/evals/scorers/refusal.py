"""Accuracy of refusals: the flow should decline if the documents contain no answer, and answer if they do.

`refusal_accuracy` is graded on unanswerable turns, `answered` on answerable ones. Read them together: a flow that
always declines scores 1 on `refusal_accuracy` and 0 on `answered`. An empty reply scores 0 on both.
"""

from __future__ import annotations

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.knowledge.refusal import declines


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.unanswerable:
        return ("refusal_accuracy",)
    return ("answered",) if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    if not outcome.reply.text.strip():
        return dict.fromkeys(metrics(turn), Score(value=0.0, reason="the reply is empty"))
    declined = declines(outcome.reply.text)
    reason = "the reply declines" if declined else "the reply answers"
    if turn.unanswerable:
        return {"refusal_accuracy": Score(value=float(declined), reason=reason)}
    return {"answered": Score(value=float(not declined), reason=reason)}
