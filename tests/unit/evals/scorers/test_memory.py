"""The scorers of memory on cases worked out by hand; their embedder knows cats, cellos and Mondays."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from agentlab.core.events import Event, MemoryOp, Step
from agentlab.core.messages import Fact, Reply
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.scorers import TurnOutcome, memory_recall, memory_writes
from support.paths import OWN
from support.scoring import values


def by_topic(texts):
    topics = ("cat", "cello", "monday")
    rows = np.array([[float(topic in text.lower()) for topic in topics] + [0.1] for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def wrote(number: int, text: str, replaces: str | None = None, written: bool = True, turn: int = 0) -> MemoryOp:
    fact = Fact(id=f"f{number}", text=text, created=datetime(2026, 1, 1))
    op = "revise" if replaces else "remember"
    about = {"op": op, "text": text, "facts": (fact,), "written": written, "replaces": replaces}
    return MemoryOp(id=number, turn=turn, phase="memory_write", **about)


def recalled(*texts: str, ids: tuple[str, ...] = ()) -> MemoryOp:
    names = ids or [f"f{n}" for n in range(len(texts))]
    facts = tuple(Fact(id=i, text=t, created=datetime(2026, 1, 1)) for i, t in zip(names, texts, strict=True))
    return MemoryOp(id=90, turn=5, phase="memory_read", op="recall", text="q", facts=facts)


def remembering(*events: Event, before: tuple[Event, ...] = (), turns: tuple[Turn, ...] = ()) -> TurnOutcome:
    return TurnOutcome(reply=Reply(text=""), events=events, embed=by_topic, events_before=before, turns_before=turns)


def stating(*memory: dict, **turn: object) -> Turn:
    return Turn.model_validate({"user": "q", "expected_memory": list(memory), **turn})


CAT = {"op": "add", "content": "The user has a cat called Pickle."}
CELLO = {"op": "add", "content": "The user plays the cello."}
NOTHING = {"op": "none"}


@pytest.mark.parametrize(
    "turn, events, precision, recall",
    [
        (stating(CAT), (wrote(0, "A cat, Pickle, lives here."),), 1, 1),
        (stating(CAT), (), 0, 0),
        (stating(CAT), (wrote(0, "Cat", written=False),), 0, 0),
        (stating(CAT), (wrote(0, "Cat!"), wrote(1, "It rained.")), 0.5, 1),
        (stating(CAT, CELLO), (wrote(0, "Has a cat and plays the cello."),), 1, 1),
        (stating(CAT, CELLO), (wrote(0, "Her cat."), wrote(1, "A cat again.")), 1, 0.5),
    ],
)
def test_memory_writes_are_graded(turn, events, precision, recall):
    graded = values(memory_writes.score(turn, remembering(*events)))
    assert graded == {"memory_write_precision": precision, "memory_write_recall": recall}
    assert tuple(graded) == memory_writes.metrics(turn)


def test_turns_without_a_new_fact_should_write_nothing():
    chat, repeat = stating(NOTHING), stating(NOTHING, metadata={"kind": "repeat"})
    unwritten = wrote(0, "Cat", written=False)
    assert values(memory_writes.score(chat, remembering(unwritten))) == {"memory_restraint": 1}
    assert values(memory_writes.score(repeat, remembering(unwritten))) == {
        "memory_restraint": 1,
        "duplicates_prevented": 1,
    }
    twice = remembering(wrote(0, "Cat"))
    assert values(memory_writes.score(repeat, twice)) == {"memory_restraint": 0, "duplicates_prevented": 0}


def test_a_corrected_fact_must_leave_memory():
    old, new = "The lesson is on Monday.", "The lesson is on Friday, not Monday."
    turns = (stating({"op": "add", "content": old}), stating(CAT))
    turn = stating({"op": "update", "content": new, "replaces": old})
    before = (wrote(0, "Lesson on Monday."), wrote(1, "A cat."))

    def stale(*events: Event) -> float:
        graded = memory_writes.score(turn, remembering(*events, before=before, turns=turns))
        return graded["no_stale_fact"].value

    friday = "The lesson is on Friday, no longer Monday."
    assert stale(wrote(2, friday, replaces="f0")) == 1
    assert stale(wrote(2, friday)) == 0
    assert stale(wrote(2, friday, replaces="f1")) == 0
    assert stale() == 0
    graded = memory_writes.score(turn, remembering(wrote(2, "Lesson on Monday."), before=before, turns=turns))
    assert graded["memory_write_recall"].value == 0, "the old version once more is not the new one"


def test_recall_is_whether_the_evidence_was_recalled():
    turn = Turn(user="q", reference_answers=["Pickle"], metadata={"evidence": [CAT["content"], CELLO["content"]]})
    graded = memory_recall.score(turn, remembering(recalled("It rained.", "Her cat is Pickle.")))
    assert values(graded) == {"memory_recall": 0.5}
    assert values(memory_recall.score(turn, remembering())) == {"memory_recall": 0}
    repeat = Turn(user="q", metadata={"kind": "repeat", "evidence": ["a"]})
    quotes = Turn(user="q", reference_answers=["a"], metadata={"evidence": [{"doc_id": "a", "quote": "b"}]})
    assert memory_recall.metrics(repeat) == memory_recall.metrics(quotes) == ()
    others = Turn(user="q", reference_answers=["Pickle"], metadata={"evidence_turns": 3, "evidence": [CAT["content"]]})
    assert values(memory_recall.score(others, remembering(recalled("Her cat is Pickle.")))) == {"memory_recall": 1}


def test_recall_by_turn_follows_writers_and_replacements():
    turn = Turn(user="q", metadata={"evidence_turns": [["s1:1", "s1:2"], ["s2:1"]]})
    verbatim = remembering(recalled("x", "y", ids=("s1:2", "s9:1")))
    assert values(memory_recall.score(turn, verbatim)) == {"memory_recall": 0.5}
    filled = (
        Step(id=0, turn=0, name="told", text="s1:1"),
        wrote(1, "oboe"),
        Step(id=2, turn=1, name="told", text="s2:1"),
        wrote(3, "cello", replaces="f1", turn=1),
    )
    by_flow = remembering(recalled("cello", ids=("f3",)), before=filled)
    assert values(memory_recall.score(turn, by_flow)) == {"memory_recall": 1}


def test_a_perfect_memory_is_perfect_on_our_own_set_whatever_the_embedder():
    no_two_alike = {}

    def embed(texts):
        rows = np.zeros((len(texts), 2000))
        for row, text in zip(rows, texts, strict=True):
            row[no_two_alike.setdefault(text, len(no_two_alike))] = 1
        return rows

    for conversation in load_dataset(OWN / "memory").conversations:
        for turn, seen in perfect(conversation, embed):
            graded = memory_writes.score(turn, seen) | (
                memory_recall.score(turn, seen) if memory_recall.metrics(turn) else {}
            )
            assert {score.value for score in graded.values()} == {1.0}, (conversation.id, turn.user, graded)


def perfect(conversation: Conversation, embed):
    """Return each turn with the events of a flow that writes and recalls the expected facts word for word."""
    before: list[Event] = []
    ids: dict[str, str] = {}
    for number, turn in enumerate(conversation.turns):
        now: list[Event] = []
        for memory in turn.expected_memory or ():
            if memory.content is not None:
                now.append(wrote(len(ids), memory.content, ids.get(memory.replaces or ""), turn=number))
                ids[memory.content] = f"f{len(ids)}"
        if turn.metadata.get("evidence"):
            now.append(recalled(*turn.metadata["evidence"]))
        before_turn, turns = list(before), conversation.turns[:number]
        reply = Reply(text="")
        yield turn, TurnOutcome(reply=reply, events=now, embed=embed, events_before=before_turn, turns_before=turns)
        before += now
