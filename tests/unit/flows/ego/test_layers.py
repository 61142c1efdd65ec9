"""The layers of the agent: complexity selects the kind of plan, and limits hold for any completion."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.core.events import Decision
from agentlab.core.messages import Request
from agentlab.flows import ego
from agentlab.flows.ego.own_tools import memory_maintenance, reflection
from agentlab.models.scripted import Scripted
from support.doubles import session_over
from support.layered_agent import USUAL, Tool, agent, judge, plan, prompts, prompts_of, purpose, say, step


@pytest.mark.parametrize(
    ("complexity", "verdict", "calls"),
    [
        ("simple", [judge(90)], ["plan", "evaluate", "bubble"]),
        ("simple", [judge(90, confidence=0.5), judge(90)], ["plan", "evaluate", "step", "evaluate", "bubble"]),
        ("moderate", [judge(90, False)], ["plan", "step", "evaluate", "step", "bubble"]),
        ("moderate", [judge(90, confidence=0.5)], ["plan", "step", "evaluate", "bubble"]),
        ("complex", [judge(90, confidence=0.5)], ["plan", "step", "evaluate", "step", "bubble"]),
        ("complex", [judge(90)], ["plan", "step", "evaluate", "bubble"]),
    ],
)
async def test_complexity_decides_how_steps_are_chosen_and_when_it_is_over(complexity, verdict, calls):
    replies = {"plan": plan("search", complexity=complexity), "step": [step("search"), step(None)], "evaluate": verdict}
    session, _ = agent(replies=replies, reflection=False)
    await say(session, "What is an oboe?")
    assert prompts_of(session) == calls


async def test_a_strategy_with_steps_begins_with_one():
    session, model = agent(replies={"plan": plan("search"), "step": [step("search"), step(None)]})
    await say(session, "What is an oboe?")
    session, unplanned = agent(replies={"step": step(None)}, planning=False)
    await say(session, "Hello")

    def may_end(model) -> list[bool]:
        return ['{"type": "null"}' in json.dumps(r.output_schema) for r in model.requests if purpose(r) == "step"]

    assert may_end(model) == [False] and may_end(unplanned) == [True]


async def test_empty_plan_and_agent_without_tools_answer_at_once():
    session, _ = agent(replies={"plan": plan(complexity="simple")}, reflection=False)
    await say(session, "Hello")
    assert prompts_of(session) == ["plan", "bubble"]
    bare = session_over(ego, Scripted([USUAL["bubble"]], loop=True), tools=[reflection], reflection=False)
    await say(bare, "Hello")
    assert prompts_of(bare) == ["bubble"]


async def test_the_iteration_limit_is_a_hard_stop():
    endless = {"plan": plan("search"), "step": step("search"), "evaluate": judge(90, False)}
    session, _ = agent(replies=endless, max_iterations=4)
    await say(session, "What is an oboe?")
    assert prompts_of(session).count("step") == 4
    limits = [e for e in session.trace.events if isinstance(e, Decision) and e.name == "iteration limit reached"]
    assert len(limits) == 1
    assert ego.Settings().max_iterations == 10


async def test_a_step_that_cannot_be_read_is_no_wish_to_end():
    session, model = agent(
        replies={"plan": plan("search"), "step": ["Now I search.", "Now I search.", step("search"), step(None)]},
        max_retries=0,
        evaluation=False,
    )
    await say(session, "What is an oboe?")
    invalid = [e for e in session.trace.events if isinstance(e, Decision) and e.choice == "invalid"]
    assert [e.name for e in invalid] == ["next step"]
    assert "1. (none)" in prompts(model, "step")[-1]
    assert "An oboe is a woodwind." in prompts(model, "bubble")[0]


nonsense = st.one_of(
    st.just("no JSON"),
    st.just(""),
    st.just("{" * 50),
    st.sampled_from(["search", "teleport", "memoryMaintenance", "reflection"]).map(lambda name: plan(name, name, name)),
    st.sampled_from(["search", "teleport", "reflection", None]).map(step),
    st.tuples(st.integers(-5, 500), st.booleans()).map(lambda arguments: judge(*arguments)),
    st.just('{"relevant": [1, 99, "x", true], "summary": 7, "drop": "all", "merged": [3], "steps": [1, {"tool": 2}]}'),
    st.just('{"score": NaN, "complete": "yes", "chat": null, "tags": {}, "complexity": ["simple"], "lessons": "none"}'),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(nonsense, min_size=1, max_size=12),
    st.fixed_dictionaries({name: st.booleans() for name in ("planning", "evaluation", "reflection", "relevance")}),
    st.sampled_from(["y", "1\n", "\x1b", "\u4e2d"]),
    st.sampled_from([1, 40]),
)
async def test_no_answer_of_the_model_makes_it_endless_or_its_prompts_unbounded(replies, switches, output, tools):
    longest = []
    turn = iter(range(10**6))

    def answer(request: Request) -> str:
        longest.append(sum(len(message.text) for message in request.messages))
        return replies[next(turn) % len(replies)]

    session = session_over(
        ego,
        Scripted([answer], loop=True),
        tools=[
            *(Tool(f"search{number or ''}", output * 25_000) for number in range(tools)),
            reflection,
            memory_maintenance,
        ],
        **switches,
    )
    for tool in session.tools.values():
        if isinstance(tool, Tool):
            tool.instruction = "z" * 2000
    await say(session, "What is an oboe?", "x" * 2000, "consolidate")
    # An attempt: three plans, ten times a step, an evaluation and a maintenance; all asked twice.
    a_turn = 2 * (1 + 2 * (3 + 10 * 3 + 2) + 1 + 2)
    assert len(longest) <= 3 * a_turn
    assert max(longest) < 40_000
