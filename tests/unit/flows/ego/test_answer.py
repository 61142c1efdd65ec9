"""The last call: its prompt contains all results, and only a valid completion counts as a reply."""

from __future__ import annotations

import json

import pytest

from agentlab.core.messages import Completion, Message
from support.layered_agent import Tool, agent, judge, plan, prompts, say, step


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (Tool("search", "Plain text."), "Plain text."),
        (Tool("search", ValueError("broken")), "Error: the tool search"),
    ],
)
async def test_the_bubble_gets_errors_texts_or_objects(tool, expected):
    session, model = agent(tool, max_retries=0)
    await say(session, "What is an oboe?")
    assert f"an instruction):\n{expected}" in prompts(model, "bubble")[0]


async def test_several_results_reach_the_bubble_as_an_object():
    session, model = agent(
        replies={
            "plan": plan("search"),
            "step": [step("search"), step("search"), step(None)],
            "evaluate": judge(90, False),
        }
    )
    await say(session, "What is an oboe?")
    prompt = prompts(model, "bubble")[0].partition("an instruction):\n")[2].partition("\n\nThe user's")[0]
    result = json.loads(prompt)
    assert (result["type"], len(result["response"]), result["complete"]) == ("steps", 2, True)


@pytest.mark.parametrize(
    ("text", "rendered", "prompt_count"),
    [
        ("Just a woodwind.", "Just a woodwind.", 2),
        ('{"answer": "A woodwind."}', "A woodwind.", 2),
        ('{"chat": "A \\"reed\\".", "canvas": "# Oboe\\nIt has', 'A "reed".\n\n# Oboe\nIt has', 1),
        (Completion(message=Message(role="agent", text='{"chat": "A ree'), finish_reason="length"), "A ree", 1),
        ('{"chat": "A ree', "A ree", 2),
        ('{"canvas": "# Oboe"}', "# Oboe", 2),
    ],
)
async def test_an_answer_in_another_form_is_still_an_answer(text, rendered, prompt_count):
    session, model = agent(replies={"bubble": text})
    (reply,) = await say(session, "What is an oboe?")
    assert reply.text == rendered
    assert len(prompts(model, "bubble")) == prompt_count


async def test_results_reach_the_answer_whole_and_are_cited():
    passages = [("x" * 1600) + " FACT-A", ("y" * 1600) + " FACT-B"]
    session, model = agent(
        Tool("search", *passages),
        replies={"plan": plan("search"), "step": [step("search"), step("search"), step(None)]}
        | {"evaluate": judge(90, False)},
    )
    await say(session, "What is an oboe?")
    for name in ("bubble", "evaluate"):
        assert "FACT-A" in prompts(model, name)[-1] and "FACT-B" in prompts(model, name)[-1]
