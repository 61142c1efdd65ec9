"""Was what answers a question among the facts recalled in its turn? Graded apart from the answer that was made of it.

`memory_recall` is the share of the question's pieces of evidence that a recalled fact carries, whether the flow recalls
by itself or the model looked it up; with one piece of evidence, as most questions have, it is the hit rate. Two kinds:

* `metadata.evidence`, facts in words, on turns with reference answers: a recalled fact carries one that it tells, and
  not an older version of it (`facts.py` says how that is decided);
* `metadata.evidence_turns`, which a memory set makes of a question's `evidence_ids`: for each piece the ids of the
  dialogue turns it was told in. A fact carries it if it is one of these turns, or was written or confirmed when one of
  them was told, or replaces such a fact. For evidence that names a session, any turn of the session will do, so the
  rate is that of finding the place, an upper bound of finding the words.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeGuard

from agentlab.core.events import MemoryOp, Step
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.facts import other_versions, telling


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("memory_recall",) if _places(turn) or _words(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    recalled = [
        fact for event in outcome.events if isinstance(event, MemoryOp) and event.op == "recall" for fact in event.facts
    ]
    if _places(turn):
        origins = _origins(outcome)
        places = [places for fact in recalled for places in (origins.get(fact.id) or {fact.id},)]
        carried = [any(found & set(piece) for found in places) for piece in _places(turn)]
    else:
        texts = [fact.text for fact in recalled]
        carried = [
            bool(telling(texts, piece, outcome.embed, other_versions(piece, outcome.turns_before)))
            for piece in _words(turn)
        ]
    facts = "1 recalled fact" if len(recalled) == 1 else f"{len(recalled)} recalled facts"
    reason = f"{sum(carried)} of {len(carried)} pieces of evidence among {facts}"
    return {"memory_recall": Score(value=sum(carried) / len(carried), reason=reason)}


# Metadata is free: what is not of the form is somebody else's.


def _places(turn: Turn) -> list[list[str]]:
    pieces = turn.metadata.get("evidence_turns")
    return pieces if isinstance(pieces, list) and all(map(_are_strings, pieces)) else []


def _words(turn: Turn) -> list[str]:
    pieces = turn.metadata.get("evidence")
    return pieces if turn.reference_answers and _are_strings(pieces) else []


def _are_strings(pieces: object) -> TypeGuard[list[str]]:
    return isinstance(pieces, list) and bool(pieces) and all(isinstance(piece, str) for piece in pieces)


def _origins(outcome: TurnOutcome) -> dict[str, set[str]]:
    """Fact id -> the dialogue turns it was written in, where a flow wrote the facts of a memory set itself."""
    dialogue = {e.turn: e.text for e in outcome.events_before if isinstance(e, Step) and e.name == "told"}
    origins: dict[str, set[str]] = defaultdict(set)
    for event in outcome.events_before:
        if isinstance(event, MemoryOp) and event.op != "recall" and event.turn in dialogue:
            # Also where nothing was written because a stored fact says it already.
            for fact in event.facts:
                origins[fact.id] |= {dialogue[event.turn]} | origins.get(event.replaces or "", set())
    return origins
