"""Accuracy of refusals: the flow should decline if the documents contain no answer, and answer if they do.

`refusal_accuracy` is graded on unanswerable turns, `answered` on answerable ones. Read them together: a flow that
always declines scores 1 on `refusal_accuracy` and 0 on `answered`. A reply without a word scores 0 on both.

A turn has no score if the reply is cut off, or if it cannot be decided whether it declines: `knowledge.refusal` reads
English replies by wording and by the vectors of the run's embedder, and other languages only with an extra. Without
vectors (another embedder, an older recording, an import) wording alone decides in English.
"""

from __future__ import annotations

from agentlab.core.errors import NotRecorded
from agentlab.core.events import ANSWERING, ModelCall
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import WEIGHTS, Reading, declines, read_reply, vote

__all__ = ["declines", "metrics", "score"]


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.unanswerable:
        return ("refusal_accuracy",)
    return ("answered",) if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reading = _read(outcome)
    right = "declines" if turn.unanswerable else "answers"
    value = None if reading.verdict == "not decided" else float(reading.verdict == right)
    return dict.fromkeys(metrics(turn), Score(value=value, reason=reading.why))


def _read(outcome: TurnOutcome) -> Reading:
    calls = [each for each in getattr(outcome, "events", ()) if isinstance(each, ModelCall)]
    stop = next((call.stop for call in reversed(calls) if call.phase in ANSWERING), "")
    text = strip_markers(outcome.reply.text)
    if stop and text.strip():
        return Reading("not decided", f"not decided: the reply is cut off ({stop})")
    embedder = getattr(outcome, "embedder", "")

    try:
        return read_reply(text, (lambda texts: vote(embedder, outcome.embed(texts))) if embedder in WEIGHTS else None)
    except NotRecorded:  # a recording from before the scorer read vectors
        return read_reply(text)
