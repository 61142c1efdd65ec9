"""Selection from too many tools for a prompt: needed ones, the agent's own, and those nearest to the message."""

from __future__ import annotations

import pytest

from agentlab.core.events import Decision, ToolRun
from agentlab.flows.ego.tool_choice import select_tools
from agentlab.tools.ask import question
from support.layered_agent import Tool, agent, judge, plan, prompts, say, step


def many(number: int) -> list[Tool]:
    return [Tool(f"tool_{at}", "nothing") for at in range(number)]


def chosen(session) -> list[str]:
    return [str(e.choice) for e in session.trace.events if isinstance(e, Decision) and e.name == "tools offered"]


async def test_two_hundred_tools_fit_and_the_one_that_is_wanted_is_offered():
    wanted = Tool("bookTheatreTicket", "Booked.")
    session, model = agent(
        question,
        *many(200),
        wanted,
        replies={"plan": plan("bookTheatreTicket", complexity="simple"), "step": step(None)},
    )
    await say(session, "I want a ticket for the theatre, please.")
    assert next(e.call.name for e in session.trace.events if isinstance(e, ToolRun)) == "bookTheatreTicket"
    (text,) = prompts(model, "plan")
    assert "bookTheatreTicket" in text and "question(question)" in text and "memoryMaintenance" in text
    assert "tool_199" not in text and len(text) < 12_000
    first, *more = chosen(session)
    assert first.endswith(" of 203") and set(more) == {first}


async def test_all_fitting_tools_are_offered_in_order_without_a_decision():
    session, _ = agent(question, *many(5))
    await say(session, "Hello")
    assert chosen(session) == []
    names = [f"tool_{at}" for at in range(5)]
    assert [tool.spec.name for tool in select_tools(session, "anything")] == ["question", *names, "memoryMaintenance"]


async def test_tools_of_a_plan_are_offered_whatever_its_wording():
    session, _ = agent(*many(200))

    def names(*needed: str) -> list[str]:
        return [tool.spec.name for tool in select_tools(session, "hello", needed)]

    assert "tool_177" in names("tool_177") and "tool_177" not in names()


async def test_missing_tool_is_searched_in_the_next_step():
    baker = Tool("bake_bread", "Baked.")
    session, model = agent(
        *many(200),
        baker,
        replies={
            "plan": plan("tool_1"),
            "step": [step("tool_1"), step("bake_bread"), step(None)],
            "evaluate": [judge(40, False, comment="there is no bread"), judge(95)],
        },
    )
    await say(session, "Hello")
    first, second = prompts(model, "step")
    assert "bake_bread" not in first and "bake_bread" in second
    assert baker.received


@pytest.mark.parametrize(("limit", "offered"), [(2_500, False), (100_000, True)])
async def test_too_large_tool_is_left_out_and_the_turn_continues(limit, offered):
    huge = {"type": "object", "properties": {"x": {"enum": [f"value {n}" for n in range(5_000)]}}}
    session, _ = agent(Tool("search", "never", parameters=huge), tool_tokens=limit, token_limit=100_000)
    (reply,) = await say(session, "Hello")
    assert reply.text == "It is a woodwind.\n\n# Oboe"
    assert ("search" in [tool.spec.name for tool in select_tools(session, "Hello")]) == offered
    assert (chosen(session) == []) == offered


def units(number: int) -> list[Tool]:
    return [Tool(f"convert_unit{at}", "Converted.") for at in range(number)]


@pytest.mark.parametrize(("ranking", "is_offered"), [("message", True), ("one_text", False)])
async def test_the_message_counts_more_than_memories_of_other_turns(ranking, is_offered):
    session, model = agent(*units(150), Tool("tell_weather", "Rain."), tool_ranking=ranking)
    for _ in range(4):
        await say(session, f"Convert {', '.join(f'unit{at}' for at in range(60))}.")
    await say(session, "What will the weather be like, please?")
    assert ("- tell_weather(" in prompts(model, "plan")[-1]) == is_offered


async def test_a_message_without_words_of_a_tool_leaves_the_choice_to_memories():
    session, model = agent(*units(150), Tool("tell_weather", "Rain."))
    await say(session, "What will the weather be like?")
    await say(session, "And tomorrow?")
    assert "- tell_weather(" in prompts(model, "plan")[-1]


NAMED = {
    "exists": ("message", "bake_bread", "Error: not run, bake_bread was not offered; it is offered from now on", True),
    "as before": ("one_text", "bake_bread", "Error: there is no tool bake_bread; there are: ", False),
    "does not exist": ("message", "bake_cake", "Error: there is no tool bake_cake; there are: ", False),
}


@pytest.mark.parametrize(("ranking", "name", "result", "is_offered"), NAMED.values(), ids=NAMED)
async def test_a_step_with_a_tool_that_was_not_offered_says_so_and_offers_it(ranking, name, result, is_offered):
    baker = Tool("bake_bread", "Baked.")
    session, model = agent(
        *many(200),
        baker,
        replies={"plan": plan("tool_1"), "step": [step(name), step(name), step(None)], "evaluate": judge(40, False)},
        tool_ranking=ranking,
        max_retries=0,
    )
    await say(session, "Hello")
    first, second, *_ = prompts(model, "step")
    assert result in second and "- bake_bread(" not in first and ("- bake_bread(" in second) == is_offered
    assert bool(baker.received) == is_offered


@pytest.mark.parametrize(("ranking", "is_offered"), [("message", True), ("one_text", False)])
async def test_a_plan_with_a_tool_that_was_not_offered_is_made_again_with_it(ranking, is_offered):
    baker = Tool("bake_bread", "Baked.")
    plans = [plan("bake_bread", complexity="simple")] * 2
    session, model = agent(
        *many(200),
        baker,
        replies={"plan": plans, "step": step(None)},
        tool_ranking=ranking,
        max_replans=1,
        max_retries=0,
    )
    await say(session, "Hello")
    first, second = prompts(model, "plan")
    assert "- bake_bread(" not in first and ("- bake_bread(" in second) == is_offered
    assert ("A plan failed: bake_bread was not offered before" in second) == is_offered
    assert ("A plan failed: there is no tool bake_bread" in second) != is_offered
    assert bool(baker.received) == is_offered
