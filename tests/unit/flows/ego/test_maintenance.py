"""Maintenance of the long-term memory: it prunes and merges, and loses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentlab.core.errors import BadRequest
from agentlab.core.events import ToolRun
from agentlab.flows.ego.memory import MEMORY
from support.layered_agent import agent, entries, plan, prompts, say


async def test_maintenance_prunes_and_merges_and_judges_and_loses_nothing():
    session, _ = agent(
        replies={
            "plan": [plan("search", complexity="simple"), plan("memoryMaintenance", complexity="simple", x=1)],
            "maintenance": '{"drop": [1, 9], "merged": ["Looking up helps."], "evaluation": "Searches went well."}',
        }
    )
    await say(session, "What is an oboe?", "consolidate")
    run = next(e for e in session.trace.events if isinstance(e, ToolRun) and e.call.name == "memoryMaintenance")
    assert run.output == "Long-term memory: 1 entries pruned, 1 written anew. Searches went well."
    memory = session.state(MEMORY)
    entries = [(e.text, e.facts["tags"]) for e in memory.long.entries()]
    assert entries[:2] == [("Looking up helps.", "consolidated"), ("Searches went well.", "evaluation")]
    assert "lessons: Look it up first." in memory.long.pruned.read_text()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"drop": [1, 2, 3], "merged": [], "evaluation": ""}', 3),
        ('{"drop": [], "merged": ["a", "b", "c"], "evaluation": ""}', 3),
        ('{"drop": [1, 2, 3], "merged": ["All of it."], "evaluation": ""}', 1),
    ],
)
async def test_maintenance_neither_empties_memory_nor_lets_it_grow(text, left):
    session, _ = agent(user_facts=False, replies={"maintenance": text})
    await say(session, "One", "Two", "Three")
    await session.state(MEMORY).maintain(session)
    assert len(entries(session, "long")) == left


async def test_maintenance_goes_through_all_of_long_term_memory_part_by_part():
    keeps = '{"drop": [], "merged": [], "evaluation": ""}'
    session, model = agent(maintain_every=2, user_facts=False, replies={"maintenance": keeps})
    await say(session, "One")
    memory = session.state(MEMORY)
    for number in range(25):
        memory.long.add(replace(entries(session, "long")[0], text=f"fact {number}", facts={}))
    await say(session, "Two", "Three", "Four")
    first, second = prompts(model, "maintenance")
    assert "fact 18" in first and "fact 19" not in first
    assert "fact 19" in second and "fact 18" not in second


def ran(session) -> list[str]:
    return [e.call.name for e in session.trace.events if isinstance(e, ToolRun)]


@pytest.mark.parametrize("command", ["consolidate", "Run memory maintenance.", "prune your memories"])
async def test_command_to_maintain_memory_runs_and_reports(command):
    text = '{"drop": [1], "merged": ["Looking up helps."], "evaluation": ""}'
    session, _ = agent(replies={"maintenance": text})
    _, reply = await say(session, "What is an oboe?", command)
    assert reply.text == reply.data["chat"] == "Long-term memory: 1 entries pruned, 1 written anew."
    assert entries(session, "long")[0].text == "Looking up helps."
    assert ran(session) == ["search", "reflection", "memoryMaintenance", "reflection"]
    assert [e.facts["kind"] for e in entries(session) if e.module == "ego"][-2:] == ["command", "response"]


@pytest.mark.parametrize("command", ["Do a memory analysis", "reflect", "consolidation feedback"])
async def test_command_to_analyse_memory_runs_once_and_reports(command):
    session, _ = agent(reflection=False)
    _, reply = await say(session, "What is an oboe?", command)
    assert reply.data["canvas"] == "* lessons: Look it up first."
    assert [e.text for e in entries(session, "long")] == ["lessons: Look it up first."]
    assert ran(session) == ["search", "reflection"]


async def test_message_about_memory_is_no_command():
    session, _ = agent(reflection=False)
    (reply,) = await say(session, "What is memory consolidation?")
    assert reply.data["chat"] == "It is a woodwind." and ran(session) == ["search"]


async def test_failed_command_is_reported_and_the_next_one_works():
    session, _ = agent(
        replies={"maintenance": [BadRequest("down", "scripted"), '{"drop": [], "merged": [], "evaluation": ""}']}
    )
    _, failed, done = await say(session, "Hello", "consolidate", "consolidate")
    assert failed.text.startswith("Error: the tool memoryMaintenance failed") and "0 entries pruned" in done.text


async def test_command_on_an_empty_memory_reports_nothing_to_do():
    session, _ = agent(reflection=False)
    (reply,) = await say(session, "consolidate")
    assert reply.text == "Long-term memory is empty; there is nothing to consolidate."
