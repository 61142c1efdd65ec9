"""Maintenance of the long-term memory: it prunes and merges, and loses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    memory = session.kept(MEMORY)
    kept = [(e.text, e.facts["tags"]) for e in memory.long.entries()]
    assert kept[:2] == [("Looking up helps.", "consolidated"), ("Searches went well.", "evaluation")]
    assert "lessons: Look it up first." in memory.long.pruned.read_text()


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ('{"drop": [1, 2, 3], "merged": [], "evaluation": ""}', 3),
        ('{"drop": [], "merged": ["a", "b", "c"], "evaluation": ""}', 3),
        ('{"drop": [1, 2, 3], "merged": ["All of it."], "evaluation": ""}', 1),
    ],
)
async def test_maintenance_neither_empties_memory_nor_lets_it_grow(told, left):
    session, _ = agent(replies={"maintenance": told})
    await say(session, "One", "Two", "Three")
    await session.kept(MEMORY).maintain(session)
    assert len(entries(session, "long")) == left


async def test_maintenance_goes_through_all_of_long_term_memory_part_by_part():
    session, model = agent(maintain_every=2, replies={"maintenance": '{"drop": [], "merged": [], "evaluation": ""}'})
    await say(session, "One")
    memory = session.kept(MEMORY)
    for number in range(25):
        memory.long.add(replace(entries(session, "long")[0], text=f"fact {number}", facts={}))
    await say(session, "Two", "Three", "Four")
    first, second = prompts(model, "maintenance")
    assert "fact 18" in first and "fact 19" not in first
    assert "fact 19" in second and "fact 18" not in second
