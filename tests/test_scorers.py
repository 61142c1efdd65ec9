"""Scorers on cases worked out by hand."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from doubles import session_over
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import BadRequest
from agentlab.core.events import Decision, Event, MemoryOp, Search, Step, ToolRun
from agentlab.core.messages import Citation, Fact, Passage, Reply, ToolCall, ToolSpec, UserTurn
from agentlab.data.conversations import Conversation, ToolDefinition, Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.scorers import (
    Outcome,
    answer,
    citations,
    lookup,
    memory_recall,
    memory_writes,
    refusal,
    retrieval,
    similarity,
    tools,
)
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted, call

OWN = Path(__file__).parents[1] / "datasets"
PUBLIC = Path(__file__).parents[2] / "shared" / "datasets"


def found(*doc_ids: str) -> Search:
    passages = tuple(Passage(id=f"{d}#0", doc_id=d, title="", text="", start=0, end=0) for d in doc_ids)
    return Search(id=0, turn=0, phase="retrieve", query="q", passages=passages)


def outcome(text: str = "", cited: tuple[str, ...] = (), events: tuple = (), embed=None) -> Outcome:
    made = tuple(Citation(doc_id=d, passage_id=f"{d}#0", title="") for d in cited)
    return Outcome(reply=Reply(text=text, citations=made), events=events, embed=embed or (lambda texts: np.eye(2)))


def values(scores: dict) -> dict[str, float]:
    return {name: score.value for name, score in scores.items()}


@pytest.mark.parametrize(
    "said, references, f1, exact",
    [
        ("The Netherlands.", ["Netherlands", "Holland"], 1.0, 1.0),
        ("It was the Netherlands [1].", ["Netherlands"], 0.5, 0.0),
        ("7.32 m wide", ["7.32 m", "about seven metres"], 0.8, 0.0),
        ("no idea", ["yes"], 0.0, 0.0),
        ("", ["yes"], 0.0, 0.0),
    ],
)
def test_answers(said, references, f1, exact):
    turn = Turn(user="q", reference_answers=references)
    assert values(answer.score(turn, outcome(said))) == {"answer_f1": pytest.approx(f1), "exact_match": exact}


@pytest.mark.parametrize(
    ("said", "reference", "f1"),
    [
        ("It\u2019s Paul\u2019s", "It's Paul's", 1),
        ("\u00aboui\u00bb", "Oui.", 1),
        ("Cafe\u0301", "Caf\u00e9", 1),
        ("\u732b\u306f\u3044\u307e\u3059\u3002", "\u732b\u306f\u3044\u307e\u3059", 1),
        ("\u732b", "\u9ed2\u732b", 2 / 3),
        ("\u0939\u093f\u0928\u094d\u0926\u0940\u0964", "\u0939\u093f\u0928\u094d\u0926\u0940", 1),
        ("\u0939\u093e", "\u0939\u0940", 0),
    ],
)
def test_other_scripts_than_ascii_are_compared_word_by_word(said, reference, f1):
    assert answer.f1(answer.normalise(said), answer.normalise(reference)) == pytest.approx(f1)


@given(st.text(), st.text())
def test_f1_is_symmetric_and_bounded(one, other):
    one, other = answer.normalise(one), answer.normalise(other)
    assert answer.f1(one, other) == answer.f1(other, one)
    assert 0 <= answer.f1(one, other) <= 1
    assert answer.f1(one, one) == 1


def test_similarity_takes_the_nearest_reference_and_an_empty_reply_is_0():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    turn = Turn(user="q", reference_answers=["far", "near"])
    assert values(similarity.score(turn, outcome("x", embed=lambda texts: vectors))) == {"semantic_similarity": 0.6}
    assert values(similarity.score(turn, outcome(" "))) == {"semantic_similarity": 0.0}


def test_retrieval_and_citations():
    turn = Turn(user="q", relevant_doc_ids=["a", "b"])
    seen = outcome(cited=("b", "x"), events=(found("x", "b"), found("b", "c")))
    assert values(retrieval.score(turn, seen)) == {"retrieval_recall": 0.5, "retrieval_mrr": 0.5}
    assert values(citations.score(turn, seen)) == {"citation_precision": 0.5, "citation_recall": 0.5}
    nothing = outcome()
    assert values(retrieval.score(turn, nothing)) == {"retrieval_recall": 0.0, "retrieval_mrr": 0.0}
    assert values(citations.score(turn, nothing)) == {"citation_precision": 0.0, "citation_recall": 0.0}


@pytest.mark.parametrize(
    "text, declined",
    [
        ("The documents do not say.", True),
        ("I'm sorry, but the passages don't mention that.", True),
        ("There is no information about ticket prices.", True),
        ("I don't know.", True),
        ("Unfortunately, the answer cannot be determined from the context.", True),
        ("", True),
        ("Sorry, I can't answer that.", True),
        ("The handbook does not say. I can\u2019t tell.", True),
        ("It is not specified.", True),
        ("None of the documents mention this.", True),
        ("N/A", True),
        ("The rules do not allow a fourth substitute.", False),
        ("The policy is not valid abroad.", False),
        ("An indirect free kick.", False),
        ("No, the goal does not count.", False),
        ("The kick is not given and play goes on.", False),
        ("The documents do not give a number. However, a team has at most eleven players.", False),
        ("Sorry to hear that! You may change three players.", False),
    ],
)
def test_declining(text, declined):
    assert refusal.declines(text) is declined
    unanswerable = refusal.score(Turn(user="q", unanswerable=True), outcome(text))
    assert values(unanswerable) == {"refusal_accuracy": float(declined)}
    answerable = refusal.score(Turn(user="q", relevant_doc_ids=["a"]), outcome(text))
    assert values(answerable) == {"answered": float(not declined)}


@pytest.mark.parametrize("needed, events, value", [(True, (found("a"),), 1), (True, (), 0), (False, (), 1)])
def test_the_decision_to_look_up(needed, events, value):
    turn = Turn(user="q", needs_document_lookup=needed)
    assert values(lookup.score(turn, outcome(events=events))) == {"lookup_accuracy": value}


def test_a_scorer_that_does_not_apply_names_no_metric():
    bare = Turn(user="q")
    for scorer in (answer, citations, lookup, memory_recall, memory_writes, refusal, retrieval, similarity, tools):
        assert scorer.metrics(bare) == ()
    declining = Turn(user="q", unanswerable=True, reference_answers=["I cannot say."], relevant_doc_ids=[])
    assert answer.metrics(declining) == ()


# Tools.


def ran(
    name: str, number: int = 0, parent: int | None = None, error: str | None = None, **arguments: object
) -> ToolRun:
    made = ToolCall(id=f"c{number}", name=name, arguments=arguments)
    return ToolRun(id=number, turn=0, phase="tool", call=made, parent=parent, error=error)


def expecting(*calls: dict, **turn: object) -> Turn:
    return Turn.model_validate({"user": "q", "expected_calls": list(calls), "no_call": not calls, **turn})


BOOK = {"name": "book", "accepted_arguments": {"city": ["San Diego", "SD"], "nights": [2]}}
LOOK = {"name": "look", "arguments_visible_in_context": False}


@pytest.mark.parametrize(
    "turn, events, expected",
    [
        (expecting(BOOK), [ran("book", city=" san diego", nights="2")], (1, 1, 1, 1, 1)),
        (expecting(BOOK), [ran("book", city="Ulm", nights=2)], (1, 1, 1, 1, 0)),
        (expecting(BOOK), [], (0, 0, 0, 1, 0)),
        (expecting(BOOK), [ran("look", 1), ran("book", 2, city="SD", nights=2)], (2 / 3, 0.5, 1, 1, 1)),
        (expecting(BOOK, BOOK), [ran("book", city="SD", nights=2)], (2 / 3, 1, 0.5, 1, 0.5)),
        (expecting(BOOK), [ran("book", city="SD"), ran("book", 1, city="SD", nights=2)], (2 / 3, 0.5, 1, 1, 1)),
        (expecting(BOOK), [ran("hook", error="there is no tool 'hook'")], (0, 0, 0, 0, 0)),
        (expecting(LOOK), [ran("look", query="anything at all")], (1, 1, 1, 1, None)),
    ],
)
def test_tool_calls(turn, events, expected):
    names = ("tool_f1", "tool_precision", "tool_recall", "valid_calls", "argument_accuracy")
    graded = values(tools.score(turn, outcome(events=events)))
    assert graded == {
        name: pytest.approx(value) for name, value in zip(names, expected, strict=True) if value is not None
    }
    assert set(graded) == set(tools.metrics(turn))


def test_no_call_is_right_where_none_is_due_and_a_choice_that_cannot_be_read_is_invalid():
    nothing = expecting()
    assert values(tools.score(nothing, outcome())) == {"tool_f1": 1, "no_call_accuracy": 1, "valid_calls": 1}
    called = outcome(events=[ran("book"), Decision(id=9, turn=0, name="next action", choice="invalid", why="no JSON")])
    assert values(tools.score(nothing, called)) == {"tool_f1": 0, "no_call_accuracy": 0, "valid_calls": 0.5}
    assert tools.metrics(Turn(user="q", no_call=True)) == tools.metrics(nothing)


def test_what_the_closing_memory_step_calls_is_not_needless_and_may_be_expected():
    inside = [Step(id=0, turn=0, name="final_memory"), Step(id=1, turn=0, name="x", parent=0)]
    saved = ran("save_memory", 2, parent=1, content="Ann plays the oboe.")
    assert values(tools.score(expecting(), outcome(events=[*inside, saved])))["no_call_accuracy"] == 1
    assert values(tools.score(expecting(), outcome(events=[saved])))["no_call_accuracy"] == 0
    due = expecting({"name": "save_memory", "accepted_arguments": {"content": ["ann plays the oboe."]}})
    assert values(tools.score(due, outcome(events=[*inside, saved])))["argument_accuracy"] == 1


class Tool:
    def __init__(self, name):
        self.spec = ToolSpec(name=name, description="", parameters={"type": "object"})

    async def run(self, arguments, session):
        return "done"


async def after_a_turn(*replies, **settings) -> Outcome:
    """What chatbox leaves in the trace when the model replies so."""
    session = session_over(chatbox, Scripted(replies), tools=[Tool("look"), Tool("save_memory")], **settings)
    reply = await chatbox.respond(UserTurn(text="q"), session)
    assert reply.text == "Hi."
    return outcome(events=tuple(session.trace.events))


NONE, TAKE, SAVE = '{"tool": null}', '{"tool": "look"}', '{"tool": "save_memory"}'
FAULT = BadRequest("no")


@pytest.mark.parametrize(
    "replies, valid",
    [
        ([NONE, NONE, "Hi."], 1),
        (["I would look", NONE, "Hi."], 0),
        (['{"tool": "hook"}', NONE, "Hi."], 0),
        ([FAULT, NONE, "Hi."], 1),
        ([NONE, "I would save", "Hi."], 0),
        ([NONE, FAULT, "Hi."], 1),
        ([TAKE, "{}", "I would look", NONE, "Hi."], 0.5),
        ([TAKE, "{}", FAULT, FAULT, "Hi."], 1),
        ([TAKE, "the offside law", NONE, "Hi."], 0),
        ([TAKE, FAULT, NONE, "Hi."], 1),
        ([NONE, SAVE, "tea", "{}", "Hi."], 0.5),
        ([NONE, SAVE, FAULT, "{}", "Hi."], 1),
    ],
)
async def test_what_the_model_wrote_and_cannot_be_read_is_invalid_and_a_providers_fault_is_not(replies, valid):
    seen = await after_a_turn(*replies)
    assert values(tools.score(expecting(), seen))["valid_calls"] == valid


@pytest.mark.parametrize(
    "replies, settings",
    [([NONE, SAVE, "{}", "Hi."], {}), (["Hi.", call("save_memory")], {"protocol": "native"})],
    ids=["two_step", "native"],
)
async def test_the_memory_step_of_the_orchestrator_is_the_closing_step_of_the_scorer(replies, settings):
    seen = await after_a_turn(*replies, **settings)
    assert [event.call.name for event in seen.events if isinstance(event, ToolRun)] == ["save_memory"]
    assert values(tools.score(expecting(), seen)) == {"tool_f1": 1, "no_call_accuracy": 1, "valid_calls": 1}
    asked = values(tools.score(expecting({"name": "save_memory"}), seen))
    assert (asked["tool_precision"], asked["tool_recall"]) == (1, 1)


def test_the_order_of_calls_counts_where_it_is_told():
    turn = expecting(LOOK, BOOK, call_order="sequence")
    for names, value in ((("look", "look", "book"), 1), (("book", "look"), 0), (("look",), 0)):
        events = [ran(name, number) for number, name in enumerate(names)]
        assert values(tools.score(turn, outcome(events=events)))["call_order"] == value


@pytest.mark.parametrize(
    "accepted, optional, given, right",
    [
        ({"x": [5]}, [], {"x": 5.0}, True),
        ({"x": ["007"]}, [], {"x": "7"}, False),
        ({"x": ["10000000000000000000001"]}, [], {"x": 10**22 + 1}, True),
        ({"x": [5]}, [], {"x": 10**400}, False),
        ({"x": [True]}, [], {"x": "TRUE"}, True),
        ({"x": [1]}, [], {"x": True}, False),
        ({"x": [[1, 2]]}, [], {"x": ["1", 2.0]}, True),
        ({"x": [[1, 2]]}, [], {"x": [2, 1]}, False),
        ({"x": [{"a": ["B"]}]}, [], {"x": {"a": ["b "]}}, True),
        ({"x": ["a", ""]}, [], {}, True),
        ({"x": ["a"]}, ["x"], {}, True),
        ({"x": []}, ["x"], {"x": ""}, True),
        ({"x": []}, ["x"], {"x": "b"}, False),
        ({"x": ["a"]}, ["x"], {"x": "b"}, False),
        ({"size": ["m"]}, [], {}, True),
        ({"size": ["l"]}, [], {}, False),
        ({}, [], {"size": "M", "note": None}, True),
        ({}, [], {"size": "l"}, False),
        ({}, [], {"other": 1}, False),
    ],
)
def test_accepted_arguments(accepted, optional, given, right):
    turn = expecting({"name": "t", "accepted_arguments": accepted, "optional_arguments": optional})
    described = {"type": "object", "properties": {"x": {}, "size": {"type": "string", "default": "m"}}}
    seen = Outcome(
        reply=Reply(text=""),
        events=[ran("t", **given)],
        embed=lambda texts: np.eye(2),
        tools=[ToolDefinition(name="t", parameters=described)],
    )
    assert values(tools.score(turn, seen))["argument_accuracy"] == right


def test_each_expected_call_has_a_call_of_its_own():
    wide = {"name": "t", "accepted_arguments": {"x": [1, 2]}}
    narrow = {"name": "t", "accepted_arguments": {"x": [1]}}
    both = outcome(events=[ran("t", 0, x=1), ran("t", 1, x=2)])
    assert values(tools.score(expecting(wide, narrow), both))["argument_accuracy"] == 1


@pytest.mark.parametrize("folder", [OWN / "assistant", PUBLIC / "bfcl", PUBLIC / "sgd"], ids=lambda path: path.name)
def test_the_expected_calls_of_a_data_set_are_perfect(folder):
    if not folder.is_dir():
        pytest.skip("the public sets are not beside this checkout")
    for conversation in load_dataset(folder).conversations:
        for turn in conversation.turns:
            calls = [
                ran(e.name, n, **{name: accepted[0] for name, accepted in e.accepted_arguments.items() if accepted})
                for n, e in enumerate(turn.expected_calls or ())
            ]
            graded = values(tools.score(turn, outcome(events=calls)))
            assert set(graded.values()) == {1.0}, (conversation.id, turn.user)


# Memory. The embedder of these tests knows cats, cellos and Mondays.


def by_topic(texts):
    topics = ("cat", "cello", "monday")
    rows = np.array([[float(topic in text.lower()) for topic in topics] + [0.1] for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def wrote(number: int, text: str, replaces: str | None = None, written: bool = True, turn: int = 0) -> MemoryOp:
    kept = Fact(id=f"f{number}", text=text, created=datetime(2026, 1, 1))
    op = "revise" if replaces else "remember"
    about = {"op": op, "text": text, "facts": (kept,), "written": written, "replaces": replaces}
    return MemoryOp(id=number, turn=turn, phase="memory_write", **about)


def recalled(*texts: str, ids: tuple[str, ...] = ()) -> MemoryOp:
    names = ids or [f"f{n}" for n in range(len(texts))]
    facts = tuple(Fact(id=i, text=t, created=datetime(2026, 1, 1)) for i, t in zip(names, texts, strict=True))
    return MemoryOp(id=90, turn=5, phase="memory_read", op="recall", text="q", facts=facts)


def remembering(*events: Event, before: tuple[Event, ...] = (), turns: tuple[Turn, ...] = ()) -> Outcome:
    return Outcome(reply=Reply(text=""), events=events, embed=by_topic, events_before=before, turns_before=turns)


def telling(*memory: dict, **turn: object) -> Turn:
    return Turn.model_validate({"user": "q", "expected_memory": list(memory), **turn})


CAT = {"op": "add", "content": "The user has a cat called Pickle."}
CELLO = {"op": "add", "content": "The user plays the cello."}
NOTHING = {"op": "none"}


@pytest.mark.parametrize(
    "turn, events, precision, recall",
    [
        (telling(CAT), (wrote(0, "A cat, Pickle, lives here."),), 1, 1),
        (telling(CAT), (), 0, 0),
        (telling(CAT), (wrote(0, "Cat", written=False),), 0, 0),
        (telling(CAT), (wrote(0, "Cat!"), wrote(1, "It rained.")), 0.5, 1),
        (telling(CAT, CELLO), (wrote(0, "Has a cat and plays the cello."),), 1, 1),
        (telling(CAT, CELLO), (wrote(0, "Her cat."), wrote(1, "A cat again.")), 1, 0.5),
    ],
)
def test_what_was_written_to_memory(turn, events, precision, recall):
    graded = values(memory_writes.score(turn, remembering(*events)))
    assert graded == {"memory_write_precision": precision, "memory_write_recall": recall}
    assert tuple(graded) == memory_writes.metrics(turn)


def test_nothing_is_to_be_written_where_nothing_was_told_and_nothing_twice():
    chat, repeat = telling(NOTHING), telling(NOTHING, metadata={"kind": "repeat"})
    kept = wrote(0, "Cat", written=False)
    assert values(memory_writes.score(chat, remembering(kept))) == {"memory_restraint": 1}
    assert values(memory_writes.score(repeat, remembering(kept))) == {"memory_restraint": 1, "duplicates_prevented": 1}
    twice = remembering(wrote(0, "Cat"))
    assert values(memory_writes.score(repeat, twice)) == {"memory_restraint": 0, "duplicates_prevented": 0}


def test_a_corrected_fact_must_leave_memory():
    old, new = "The lesson is on Monday.", "The lesson is on Friday, not Monday."
    told = (telling({"op": "add", "content": old}), telling(CAT))
    turn = telling({"op": "update", "content": new, "replaces": old})
    before = (wrote(0, "Lesson on Monday."), wrote(1, "A cat."))

    def stale(*events: Event) -> float:
        graded = memory_writes.score(turn, remembering(*events, before=before, turns=told))
        return graded["no_stale_fact"].value

    friday = "The lesson is on Friday, no longer Monday."
    assert stale(wrote(2, friday, replaces="f0")) == 1
    assert stale(wrote(2, friday)) == 0
    assert stale(wrote(2, friday, replaces="f1")) == 0
    assert stale() == 0
    graded = memory_writes.score(turn, remembering(wrote(2, "Lesson on Monday."), before=before, turns=told))
    assert graded["memory_write_recall"].value == 0, "the old version once more is not the new one"


def test_a_schema_without_a_mapping_of_properties_has_no_defaults():
    turn = Turn(user="q", expected_calls=[{"name": "t", "accepted_arguments": {"x": ["Caf\u00e9"]}}])
    for properties in (None, [], True):
        offered = ToolDefinition(name="t", parameters={"type": "object", "properties": properties})
        made = dataclasses.replace(outcome(events=(ran("t", x="Cafe\u0301"),)), tools=[offered])
        assert values(tools.score(turn, made))["argument_accuracy"] == 1


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


def test_recall_by_place_follows_who_wrote_a_fact_and_what_it_replaced():
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
    """Each turn with what a flow would have done that writes and recalls word for word what is expected."""
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
        yield turn, Outcome(reply=reply, events=now, embed=embed, events_before=before_turn, turns_before=turns)
        before += now
