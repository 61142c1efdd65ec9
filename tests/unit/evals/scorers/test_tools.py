"""The scorer of tool calls on cases worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agentlab.core.errors import BadRequest
from agentlab.core.events import Decision, Step, ToolRun
from agentlab.core.messages import Reply, ToolSpec, UserTurn
from agentlab.data.conversations import ToolDefinition, Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.scorers import TurnOutcome, tools
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted, call
from support.doubles import session_over
from support.paths import OWN, PUBLIC
from support.scoring import outcome, ran, values


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


def test_no_call_is_right_if_none_is_due_and_unreadable_choices_are_invalid():
    nothing = expecting()
    assert values(tools.score(nothing, outcome())) == {"tool_f1": 1, "no_call_accuracy": 1, "valid_calls": 1}
    called = outcome(events=[ran("book"), Decision(id=9, turn=0, name="next action", choice="invalid", why="no JSON")])
    assert values(tools.score(nothing, called)) == {"tool_f1": 0, "no_call_accuracy": 0, "valid_calls": 0.5}
    assert tools.metrics(Turn(user="q", no_call=True)) == tools.metrics(nothing)


def test_calls_of_the_final_memory_step_are_not_needless():
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


async def after_a_turn(*replies, **settings) -> TurnOutcome:
    """Return the trace of chatbox for these replies of the model."""
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
async def test_unreadable_calls_are_invalid_and_provider_faults_are_not(replies, valid):
    seen = await after_a_turn(*replies)
    assert values(tools.score(expecting(), seen))["valid_calls"] == valid


@pytest.mark.parametrize(
    "replies, settings",
    [([NONE, SAVE, "{}", "Hi."], {}), (["Hi.", call("save_memory")], {"protocol": "native"})],
    ids=["two_step", "native"],
)
async def test_memory_step_of_the_orchestrator_is_the_final_step_of_the_scorer(replies, settings):
    seen = await after_a_turn(*replies, **settings)
    assert [event.call.name for event in seen.events if isinstance(event, ToolRun)] == ["save_memory"]
    assert values(tools.score(expecting(), seen)) == {"tool_f1": 1, "no_call_accuracy": 1, "valid_calls": 1}
    measured = values(tools.score(expecting({"name": "save_memory"}), seen))
    assert (measured["tool_precision"], measured["tool_recall"]) == (1, 1)


def test_order_of_calls_counts_if_stated():
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
        ({"x": [[]]}, [], {"x": []}, True),
        ({"x": [{}]}, [], {"x": {}}, True),
        ({"x": [[1]]}, [], {"x": []}, False),
        ({"x": ["a"]}, [], {"x": []}, False),
        ({"x": ["April 1, 2024"]}, [], {"x": "april 1 2024"}, True),
        ({"x": ["it's"]}, [], {"x": 'it"s'}, True),
        ({"x": ["+"]}, [], {"x": "/"}, False),
        ({"x": ["-"]}, [], {"x": "/"}, False),
        ({"x": ["April 1, 2024"]}, [], {"x": "April 2, 2024"}, False),
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
    seen = TurnOutcome(
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


def test_a_schema_without_a_mapping_of_properties_has_no_defaults():
    turn = Turn(user="q", expected_calls=[{"name": "t", "accepted_arguments": {"x": ["Caf\u00e9"]}}])
    for properties in (None, [], True):
        offered = ToolDefinition(name="t", parameters={"type": "object", "properties": properties})
        made = dataclasses.replace(outcome(events=(ran("t", x="Cafe\u0301"),)), tools=[offered])
        assert values(tools.score(turn, made))["argument_accuracy"] == 1
