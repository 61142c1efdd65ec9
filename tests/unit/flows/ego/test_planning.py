"""From the message to the last step: the loop in order, plans that cannot be followed, tools that fail."""

from __future__ import annotations

import pytest

from agentlab.core.events import Notice, ToolRun
from support.layered_agent import Tool, agent, judge, plan, prompts, prompts_of, purpose, say, step


async def test_one_turn_goes_through_the_operational_loop_in_order():
    session, _ = agent()
    (reply,) = await say(session, "What is an oboe?")
    assert (reply.text, reply.data) == (
        "It is a woodwind.\n\n# Oboe",
        {"chat": "It is a woodwind.", "canvas": "# Oboe"},
    )
    steps = [line.lstrip("├─└│ ").split("  ")[0] for line in session.trace.steps().splitlines()]
    ignored = ("notify", "turn")
    assert [name for name in steps if not name.startswith(ignored)] == [
        "load_conversation",
        "save_message user",
        "process_message",
        "retrieve_memories",
        "make_plan",
        "complete (plan; no tools)",
        "execute_react",
        "next step? search",
        "call_tool search",
        "complete (evaluate; no tools)",
        "complete? yes",
        "good enough? yes",
        "handle_bubble",
        "complete (answer; no tools)",
        "save_message agent",
        "after_response",
        "call_tool reflection",
        "complete (reflect; no tools)",
        "complete (memory_write; no tools)",
    ]


async def test_the_enriched_message_holds_query_context_memories_and_capabilities():
    session, model = agent(replies={"relevance": '{"relevant": [1], "summary": "They play the oboe."}'})
    await say(session, "I play the oboe.", "Which instrument is mine?")
    message = prompts(model, "plan")[1]
    assert "Query: Which instrument is mine?" in message
    assert "Thursday, 2026-01-01, 00:00" in message
    assert "They play the oboe.\n1. [ego user] I play the oboe." in message
    assert "Capabilities: search, memoryMaintenance" in message
    assert "reflection" not in message


async def test_plan_with_an_unknown_tool_is_repeated_with_the_reason():
    session, model = agent(replies={"plan": [plan("teleport"), plan("search", complexity="simple")]})
    await say(session, "What is an oboe?")
    first, second = prompts(model, "plan")
    assert "teleport" not in first
    assert "there is no tool teleport; there are: search, memoryMaintenance" in second
    assert next(e.call.name for e in session.trace.events if isinstance(e, ToolRun)) == "search"


async def test_plans_that_keep_unknown_tools_lose_those_steps():
    session, model = agent(
        replies={"plan": plan("teleport", "search", complexity="simple"), "step": [step("search"), step(None)]}
    )
    await say(session, "What is an oboe?")
    assert len(prompts(model, "plan")) == 3
    assert [e.call.name for e in session.trace.events if isinstance(e, ToolRun)] == ["search", "reflection"]


async def test_repeated_plan_keeps_earlier_steps():
    session, model = agent(
        replies={
            "plan": [plan("search", complexity="simple"), plan("teleport"), plan("search", complexity="simple")],
            "evaluate": judge(5, comment="no source"),
        }
    )
    await say(session, "What is an oboe?")
    assert "no source" in prompts(model, "plan")[2] and "there is no tool teleport" in prompts(model, "plan")[2]


async def test_a_plan_that_was_cut_off_is_followed_as_far_as_it_goes():
    cut = plan("search", "search", complexity="simple")[:-40]
    session, _ = agent(replies={"plan": cut, "evaluate": judge(90)}, reflection=False)
    await say(session, "What is an oboe?")
    assert prompts_of(session) == ["plan", "evaluate", "bubble"]


@pytest.mark.parametrize("text", ["I would search.", '["search"]', '{"steps": "search"}'[:1]])
async def test_unreadable_plan_is_repeated_once_and_then_skipped(text):
    session, model = agent(replies={"plan": text, "step": [step("search"), step(None)]}, reflection=False)
    await say(session, "What is an oboe?")
    assert prompts_of(session) == ["plan", "plan", "step", "evaluate", "bubble"]
    again = [r for r in model.requests if purpose(r) == "plan"][1]
    assert "one JSON object that has approach, complexity" in again.messages[-1].text
    errors = [e.data["title"] for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert errors == ["LLM response cannot be used: plan"]


async def test_failing_tool_is_logged_and_the_loop_continues():
    session, model = agent(
        Tool("search", ValueError("no sky"), "Found."),
        replies={
            "plan": plan("search"),
            "step": [step("search"), step("search"), step(None)],
            "evaluate": judge(50, False),
        },
        max_retries=0,
    )
    await say(session, "What is an oboe?")
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [e.data["title"] for e in errors] == ["tool search: failed"]
    assert "no sky" in prompts(model, "step")[1]
    assert "Found." in prompts(model, "bubble")[0]
