"""Compares the texts that a turn wrote to long-term memory with the expected facts, by meaning (see `facts.py`).

`memory_write_precision` and `memory_write_recall` are graded on turns that state a fact. Precision is the share of the
written texts that state an expected fact, 0 if there is no text. Recall is the share of the expected facts that a
written text states. One text may state two facts, and two texts may state the same one.

`memory_restraint` is graded on turns after which nothing should be stored, and is 1 if nothing was. Turns with
`metadata.kind: repeat` repeat a stored fact; they count as `duplicates_prevented` too. A flow that never writes scores
1 on both.

`no_stale_fact` is graded on turns that correct a fact. It is 1 if no current memory text of the conversation states the
old version. A fact that was never stored cannot be stale, so read this metric with the recall.

Written texts are those that `remember` and `revise` stored, in any step of the flow.
"""

from __future__ import annotations

from agentlab.core.events import MemoryOp
from agentlab.data.conversations import ExpectedMemory, Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.facts import older_versions, positions_stating, stated_facts


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.expected_memory is None:
        return ()
    if not stated_facts([turn]):
        repeats = turn.metadata.get("kind") == "repeat"
        return ("memory_restraint", "duplicates_prevented") if repeats else ("memory_restraint",)
    stale = ("no_stale_fact",) if _updates(turn) else ()
    return ("memory_write_precision", "memory_write_recall", *stale)


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    written = [event.text for event in outcome.events if isinstance(event, MemoryOp) and event.written]
    expected = stated_facts([turn])
    if not expected:
        restraint = Score(value=float(not written), reason=f"wrote {_quoted(written)}; nothing should be stored")
        return dict.fromkeys(metrics(turn), restraint)
    turns = [*outcome.turns_before, turn]
    positions = [positions_stating(written, fact, outcome.embed, older_versions(fact, turns)) for fact in expected]
    stating = set[int]().union(*positions)
    n_stated = sum(map(bool, positions))
    reason = f"wrote {_quoted(written)}; {n_stated} of {len(expected)} facts stated"
    scores = {
        "memory_write_precision": Score(value=len(stating) / len(written) if written else 0.0, reason=reason),
        "memory_write_recall": Score(value=n_stated / len(expected), reason=reason),
    }
    if updates := _updates(turn):
        stored = list(_stored_texts(outcome).values())
        stale = [
            stored[position]
            for update in updates
            for position in positions_stating(stored, str(update.replaces), outcome.embed, stated_facts(turns))
        ]
        reason = f"memory still contains {_quoted(stale)}" if stale else "no text in memory states the old version"
        scores["no_stale_fact"] = Score(value=float(not stale), reason=reason)
    return scores


def _updates(turn: Turn) -> list[ExpectedMemory]:
    return [m for m in turn.expected_memory or () if m.op == "update" and m.content is not None and m.replaces]


def _stored_texts(outcome: TurnOutcome) -> dict[str, str]:
    """Return the texts by id that the conversation has written to memory and not replaced."""
    stored: dict[str, str] = {}
    for event in (*outcome.events_before, *outcome.events):
        if isinstance(event, MemoryOp) and event.written:
            stored.pop(event.replaces or "", None)
            stored[event.facts[0].id] = event.facts[0].text
    return stored


def _quoted(texts: list[str]) -> str:
    return "; ".join(f"{text[:80]!r}" for text in texts) or "nothing"
