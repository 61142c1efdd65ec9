"""Recall of a question's evidence: did the turn recall the facts that answer it, whatever the reply made of them?

`memory_recall` is the share of the pieces of evidence that a recalled fact carries. The flow or the model may have
started the recall. Most questions have one piece of evidence, so the metric is a hit rate there.

Evidence has two forms:

* `metadata.evidence` lists facts as text, on turns with reference answers. A recalled fact carries a piece if it states
  that fact and not an older version of it (`facts.py` decides).
* `metadata.evidence_turns` lists, for each piece, the ids of the dialogue turns that state it. A memory set makes it
  from a question's `evidence_ids`. A fact carries the piece in three cases: it is one of these turns, the flow wrote or
  confirmed it during one of them, or it replaces such a fact. If the evidence names a whole session any turn of the
  session counts. The metric is then an upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeGuard

from agentlab.core.events import MemoryOp, Step
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.facts import older_versions, positions_stating


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("memory_recall",) if _evidence_turns(turn) or _evidence_texts(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    recalls = (event for event in outcome.events if isinstance(event, MemoryOp) and event.op == "recall")
    recalled = [fact for event in recalls for fact in event.facts]
    if _evidence_turns(turn):
        origins = _origins(outcome)
        turn_ids = [origins.get(fact.id) or {fact.id} for fact in recalled]
        carried = [any(ids & set(piece) for ids in turn_ids) for piece in _evidence_turns(turn)]
    else:
        texts = [fact.text for fact in recalled]
        carried = [
            bool(positions_stating(texts, piece, outcome.embed, older_versions(piece, outcome.turns_before)))
            for piece in _evidence_texts(turn)
        ]
    facts = "1 recalled fact" if len(recalled) == 1 else f"{len(recalled)} recalled facts"
    reason = f"{sum(carried)} of {len(carried)} pieces of evidence among {facts}"
    return {"memory_recall": Score(value=sum(carried) / len(carried), reason=reason)}


# Users may put anything into metadata, so values of another type are ignored.


def _evidence_turns(turn: Turn) -> list[list[str]]:
    pieces = turn.metadata.get("evidence_turns")
    return pieces if isinstance(pieces, list) and all(map(_are_strings, pieces)) else []


def _evidence_texts(turn: Turn) -> list[str]:
    pieces = turn.metadata.get("evidence")
    return pieces if turn.reference_answers and _are_strings(pieces) else []


def _are_strings(pieces: object) -> TypeGuard[list[str]]:
    return isinstance(pieces, list) and bool(pieces) and all(isinstance(piece, str) for piece in pieces)


def _origins(outcome: TurnOutcome) -> dict[str, set[str]]:
    """Map fact ids to the dialogue turns that wrote them; empty if a memory set was stored verbatim."""
    dialogue = {e.turn: e.text for e in outcome.events_before if isinstance(e, Step) and e.name == "told"}
    origins: dict[str, set[str]] = defaultdict(set)
    for event in outcome.events_before:
        if isinstance(event, MemoryOp) and event.op != "recall" and event.turn in dialogue:
            # A duplicate counts too: the flow wrote nothing, because a stored fact states it already.
            for fact in event.facts:
                origins[fact.id] |= {dialogue[event.turn]} | origins.get(event.replaces or "", set())
    return origins
