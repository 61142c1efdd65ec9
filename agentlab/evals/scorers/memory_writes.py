"""What a turn wrote to long-term memory, against what was worth keeping; by meaning, not by wording.

`memory_write_precision` and `memory_write_recall` are graded on turns that tell something: the share of the texts
written that tell an expected fact, 0 where nothing was written, and the share of the expected facts that were told by
one of them. Two facts in one text, or one in two, are right. `memory_restraint` is graded on turns after which nothing
should be stored: 1 where nothing was. Of these, turns of `metadata.kind: repeat` say a stored fact again, and count as
`duplicates_prevented` too. Like a flow that always declines, one that never writes is perfect on these two.

`no_stale_fact` is graded on turns that correct a fact: 1 if no text that the conversation has written to memory and not
replaced still tells the old version. A fact that was never stored leaves nothing stale, so read it with the recall.

What is written is what `remember` and `revise` stored, whichever step of the flow it was; how two texts are compared is
said in `facts.py`.
"""

from __future__ import annotations

from agentlab.core.events import MemoryOp
from agentlab.data.conversations import ExpectedMemory, Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.facts import other_versions, telling, told


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.expected_memory is None:
        return ()
    if not told([turn]):
        repeats = turn.metadata.get("kind") == "repeat"
        return ("memory_restraint", "duplicates_prevented") if repeats else ("memory_restraint",)
    stale = ("no_stale_fact",) if _updates(turn) else ()
    return ("memory_write_precision", "memory_write_recall", *stale)


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    written = [event.text for event in outcome.events if isinstance(event, MemoryOp) and event.written]
    if not told([turn]):
        kept_out = Score(value=float(not written), reason=f"wrote {_quoted(written)}; nothing was to be stored")
        return dict.fromkeys(metrics(turn), kept_out)
    turns = [*outcome.turns_before, turn]
    found = {fact: telling(written, fact, outcome.embed, other_versions(fact, turns)) for fact in told([turn])}
    right = {position for positions in found.values() for position in positions}
    reason = f"wrote {_quoted(written)}; {sum(map(bool, found.values()))} of {len(found)} facts told"
    scores = {
        "memory_write_precision": Score(value=len(right) / len(written) if written else 0.0, reason=reason),
        "memory_write_recall": Score(value=sum(map(bool, found.values())) / len(found), reason=reason),
    }
    updates = _updates(turn)
    if updates:
        held = list(_held(outcome).values())
        stale = [
            held[position]
            for update in updates
            for position in telling(held, str(update.replaces), outcome.embed, told(turns))
        ]
        reason = f"still holds {_quoted(stale)}" if stale else "no text in memory tells the old version"
        scores["no_stale_fact"] = Score(value=float(not stale), reason=reason)
    return scores


def _updates(turn: Turn) -> list[ExpectedMemory]:
    return [m for m in turn.expected_memory or () if m.op == "update" and m.content is not None and m.replaces]


def _held(outcome: TurnOutcome) -> dict[str, str]:
    """Id and text of what the conversation has written to memory so far and not replaced."""
    held: dict[str, str] = {}
    for event in (*outcome.events_before, *outcome.events):
        if isinstance(event, MemoryOp) and event.written:
            held.pop(event.replaces or "", None)
            held[event.facts[0].id] = event.facts[0].text
    return held


def _quoted(texts: list[str]) -> str:
    return "; ".join(f"{text[:80]!r}" for text in texts) or "nothing"
