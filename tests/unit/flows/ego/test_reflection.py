"""Reflection delays no reply, and is charged to its phase."""

from __future__ import annotations

from agentlab.core.events import ModelCall
from agentlab.flows import ego
from agentlab.models.scripted import Scripted
from support.doubles import session_over
from support.layered_agent import USUAL, Tool, agent, entries, purpose, say


async def test_reflection_delays_no_reply_and_has_its_own_phase():
    session, _ = agent()
    await say(session, "What is an oboe?")
    calls = [e for e in session.trace.events if isinstance(e, ModelCall)]
    assert [(e.phase, e.background) for e in calls][-2:] == [("reflect", True), ("memory_write", True)]


async def test_a_tool_of_that_name_is_not_the_agents_own_reflection():
    mirror = Tool("reflection", "Mirrors.", parameters={"type": "object"})
    session = session_over(ego, Scripted([lambda r: USUAL[purpose(r)]], loop=True), tools=[mirror])
    await say(session, "Which tools are there?")
    assert mirror.received == []
    assert [e.text for e in entries(session, "long")] == ["lessons: Look it up first."]
