"""Tools of the coordinator: failing, in parallel, not offered, from the data set."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentlab.core.events import ToolRun
from agentlab.core.messages import Message, ToolCall
from agentlab.flows import coordinator
from agentlab.models.scripted import Scripted, call
from support.coordinators import Tool, both, messages_of, say, setup
from support.doubles import session_over


async def test_model_reads_failures_and_unknown_tools():
    session, model = setup([both(), "Sorry."], Tool("weather", ValueError("no sky")))
    assert await say(session, "Tomorrow?") == ["Sorry."]
    results = [m.text for m in model.requests[1].messages if m.role == "tool"]
    assert "no sky" in results[0] and "there is no tool 'dates'" in results[1]


@pytest.mark.parametrize("parallel", [False, True])
async def test_tools_run_in_order_or_side_by_side_and_their_results_keep_the_order(parallel):
    started_event, may_end = asyncio.Event(), asyncio.Event()

    async def slow():
        started_event.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(may_end.wait(), 0.2)
        return "slow" if may_end.is_set() else "alone"

    async def fast():
        assert started_event.is_set() or parallel
        may_end.set()
        return "fast"

    tools = Tool("weather", lambda arguments: slow()), Tool("dates", lambda arguments: fast())
    session, model = setup([both(), "Done."], *tools, parallel_tools=parallel)
    await say(session, "Tomorrow?")
    results = [m.text for m in model.requests[1].messages if m.role == "tool"]
    assert results == ["slow" if parallel else "alone", "fast"]


async def test_calls_without_ids_get_their_own():
    twins = Message(role="agent", tool_calls=(ToolCall(id="", name="weather"), ToolCall(id="", name="weather")))
    session, model = setup([twins, "Done."], Tool("weather"))
    await say(session, "Tomorrow?")
    ids = [m.tool_call_id for m in model.requests[1].messages if m.role == "tool"]
    assert len(set(ids)) == 2


async def test_only_the_tools_that_are_set_are_offered():
    session = session_over(coordinator, model := Scripted(["Hi."]), tools=[Tool("weather"), Tool("dates")])
    session.change(settings=coordinator.Settings(tools=("dates",)))
    await say(session, "Hello")
    assert [t.name for t in model.requests[0].tools] == ["dates"]


async def test_a_tool_that_is_not_offered_does_not_run():
    weather = Tool("weather")
    session = session_over(coordinator, Scripted([call("weather"), "Hi."]), tools=[weather, Tool("dates")])
    session.change(settings=coordinator.Settings(tools=("dates",)))
    await say(session, "Hello")
    assert weather.received == []
    assert messages_of(session)[2] == ("tool", "Error: not run, this tool is not offered here.")


async def test_bad_argument_is_reported_and_the_turn_continues():
    strict = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    session, _ = setup([call("weather", town="Bern"), "Which city?"], Tool("weather", parameters=strict))
    assert await say(session, "Weather?") == ["Which city?"]
    run = next(e for e in session.trace.events if isinstance(e, ToolRun))
    assert "city" in (run.error or "")


async def test_tools_of_the_data_set_are_offered_with_any_setting():
    session = session_over(coordinator, model := Scripted(["Hi."]), tools=[Tool("weather"), Tool("dates")])
    session.change(settings=coordinator.Settings(tools=("dates",)))
    session.change(has_dataset_tools=True)
    await say(session, "Hello")
    assert [t.name for t in model.requests[0].tools] == ["weather", "dates"]
