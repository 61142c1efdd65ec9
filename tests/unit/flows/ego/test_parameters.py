"""Parameters of tools: their form, their description for the model, and missing ones."""

from __future__ import annotations

import json

import pytest

from agentlab.core.errors import ToolError
from agentlab.core.events import Notice, ToolRun
from agentlab.core.messages import ToolSpec
from agentlab.flows.ego.parameters import map_parameters
from agentlab.tools.ask import llmquery, question
from support.layered_agent import SEARCH, Tool, agent, entries, judge, plan, prompts, prompts_of, purpose, say, step


async def test_tool_that_is_not_offered_does_not_run():
    session, _ = agent(
        replies={"plan": plan("search"), "step": [step("reflection"), step(None)], "evaluate": judge(90, False)},
        reflection=False,
    )
    await say(session, "What is an oboe?")
    assert "reflect" not in prompts_of(session) and entries(session, "long") == []
    assert not [e for e in session.trace.events if isinstance(e, ToolRun)]


LOOK_UP = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "names": {"type": "array", "items": {"type": "string"}}},
    "required": ["query", "names"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("wanted", "given_parameters", "mapped"),
    [
        ("question", {"query": "Why?"}, {"question": "Why?"}),
        ("question", {"question": "Why?"}, {"question": "Why?"}),
        ("question", {"": "Why?"}, {"question": "Why?"}),
        ("question", {"parameters": {"question": "Why?"}}, {"question": "Why?"}),
        ("question", {"question": "Why?", "tone": "kind"}, {"question": "Why?"}),
        ("question", {"a": "x", "b": "y"}, {}),
        ("question", {"query": 7}, {}),
        ("llmquery", {"question": "Rain?"}, {"query": "Rain?"}),
        ("look_up", {"query": "offside"}, {"query": "offside", "names": []}),
        ("look_up", {"query": "offside", "names": None}, {"query": "offside", "names": []}),
        ("look_up", {"query": "offside", "names": "all"}, {"query": "offside", "names": "all"}),
        ("open", {"a": "x", "b": "y"}, {"a": "x", "b": "y"}),
    ],
)
def test_parameters_get_the_form_the_tool_wants(wanted, given_parameters, mapped):
    specs = {
        "question": question.spec,
        "llmquery": llmquery.spec,
        "look_up": ToolSpec(name="look_up", description="", parameters=LOOK_UP),
        "open": ToolSpec(name="open", description="", parameters=SEARCH),
    }
    assert map_parameters(specs[wanted], given_parameters) == mapped


TYPED = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "on": {"type": "boolean"},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "few": {"$ref": "#/$defs/few"},
        "strange": {"type": "dict"},
        "text": {"type": "string"},
    },
    "$defs": {"few": {"type": "integer", "maximum": 3}},
}


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("n", "2", 2),
        ("n", " -7 ", -7),
        ("n", "2.0", 2.0),
        ("x", "0.10", 0.1),
        ("on", "true", True),
        ("on", "False", False),
        ("ids", "[1, 2]", [1, 2]),
        ("maybe", "2", 2),
        ("maybe", "null", None),
        ("few", "2", 2),
    ],
)
def test_text_is_read_as_what_the_schema_wants_where_nothing_is_lost(name, written, meant):
    mapped = map_parameters(ToolSpec(name="t", description="", parameters=TYPED), {name: written})[name]
    assert mapped == meant and type(mapped) is type(meant)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("n", "2.5"),
        ("n", "two"),
        ("n", "002"),
        ("n", "2 apples"),
        ("n", "true"),
        ("n", "NaN"),
        ("x", "0.1234567890123456789012"),
        ("x", "1e999"),
        ("x", "Infinity"),
        ("on", "yes"),
        ("ids", '["a"]'),
        ("ids", "[" * 100_000),
        ("few", "4"),
        ("either", "2"),
        ("strange", "2"),
        ("text", "2"),
    ],
)
def test_text_stays_where_something_would_be_lost_or_text_is_wanted(name, written):
    spec = ToolSpec(name="t", description="", parameters=TYPED)
    assert map_parameters(spec, {name: written}) == {name: written}


async def test_a_number_written_as_text_reaches_the_tool_as_a_number():
    counted = Tool("count", "ok", parameters={"type": "object", "properties": {"n": {"type": "integer"}}})
    session, _ = agent(counted, replies={"plan": plan("count", complexity="simple", n="2")})
    await say(session, "Count to two.")
    assert counted.received == [{"n": 2}]


async def test_the_question_tool_gets_its_question_whatever_the_plan_calls_it():
    session, _ = agent(question, replies={"plan": plan("question", complexity="simple", query="6 times 7?")})
    await say(session, "6 times 7?")
    run = next(e for e in session.trace.events if isinstance(e, ToolRun))
    assert (run.call.arguments, run.output, run.error) == ({"question": "6 times 7?"}, "Forty-two.", None)


async def test_model_reads_how_to_write_parameters_and_they_are_validated():
    look_up = Tool("look_up", "Found.", parameters=LOOK_UP)
    look_up.instruction = 'Say what: {"query": "reed", "names": []}'
    session, model = agent(look_up, replies={"plan": plan("look_up"), "step": step(None)})
    await say(session, "What is an oboe?")
    for name in ("plan", "step"):
        assert 'Say what: {"query": "reed", "names": []}' in prompts(model, name)[0]
        schema = next(r.output_schema for r in model.requests if purpose(r) == name)
        assert '"tool": {"const": "look_up"}' in json.dumps(schema) and '"names": {"type": "array"' in json.dumps(
            schema
        )


async def test_missing_parameters_are_reported_and_execution_continues():
    strict = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    session, model = agent(
        Tool("search", "ok", parameters=strict),
        replies={"plan": plan("search"), "step": [step("search", a="1"), step(None)], "evaluate": judge(85, False)},
        max_retries=0,
    )
    (reply,) = await say(session, "Go")
    assert reply.data["chat"] == "It is a woodwind."
    assert "'b' is a required property" in prompts(model, "bubble")[0]


def test_parameters_of_a_schema_that_requires_none_are_mapped_too():
    spec = ToolSpec(
        name="now", description="", parameters={"type": "object", "properties": {"zone": {"type": "string"}}}
    )
    for written in ({"zone": "CET"}, {"": "CET"}, {"parameters": {"zone": "CET"}}, {"timezone": "CET"}):
        assert map_parameters(spec, written) == {"zone": "CET"}
    assert map_parameters(spec, {}) == {}


async def test_a_query_fails_where_the_web_cannot_be_searched(monkeypatch):
    def unavailable(query):
        raise ToolError("the search engine cannot be used (Timeout)")

    monkeypatch.setattr("agentlab.tools.web._query_engine", unavailable)
    session, _ = agent(llmquery, replies={"step": [step("llmquery", query="rain"), step(None)]})
    await say(session, "Does it rain?")
    errors = [e.data["title"] for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert "tool llmquery: failed" in errors
