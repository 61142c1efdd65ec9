"""The session's verbs: retries, interrupts, tools as data, parallel work, memory and passages."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agentlab.core.errors import BadRequest, RateLimited, ServerFault, ToolError, Unreachable
from agentlab.core.events import MemoryOp, ModelCall
from agentlab.core.messages import ToolCall, ToolSpec
from agentlab.core.trace import Costs, Totals, critical_path
from agentlab.memory import sqlite
from agentlab.models.scripted import Scripted, call
from support.doubles import OFFSIDE, FlatEmbedder, ListIndex, session_over
from support.slow_model import HELLO, Slow

FLOW = SimpleNamespace()


class Tool:
    def __init__(self, name, run, parameters=None):
        self.spec = ToolSpec(name=name, description="", parameters=parameters or {"type": "object"})
        self._run = run

    async def run(self, arguments, session):
        return await self._run(arguments)


def calls_of(session):
    return [event for event in session.trace.events if isinstance(event, ModelCall)]


async def test_retries_are_attempts_of_one_call():
    session = session_over(FLOW, Scripted([Unreachable("gone"), ServerFault("500"), "Hi"]))
    completion = await session.complete(HELLO)
    (event,) = calls_of(session)
    assert completion.message.text == "Hi"
    assert (event.attempt, session.trace.totals().llm_calls) == (3, 1)


async def test_a_rate_limit_is_waited_out_and_kept_from_the_latency():
    session = session_over(FLOW, Scripted([RateLimited("slow down", retry_after=0.05), "Hi"]))
    await session.complete(HELLO)
    (event,) = calls_of(session)
    assert event.waited >= 0.05 > event.seconds


async def test_fatal_error_propagates_and_leaves_a_row():
    session = session_over(FLOW, Scripted([BadRequest("no"), "never asked"]))
    with pytest.raises(BadRequest):
        await session.complete(HELLO)
    (event,) = calls_of(session)
    assert event.completion is None and "BadRequest" in event.error
    assert session.trace.totals().llm_calls == 0


async def test_unexpected_adapter_error_leaves_a_row():
    session = session_over(FLOW, Scripted([TypeError("'NoneType' object is not subscriptable")]))
    with pytest.raises(TypeError):
        await session.complete(HELLO)
    (event,) = calls_of(session)
    assert event.completion is None and event.error.startswith("TypeError")


async def test_a_stop_between_two_attempts_is_no_call():
    session = session_over(FLOW, Scripted([RateLimited("slow down", retry_after=30), "never asked"]))
    task = asyncio.create_task(session.complete(HELLO))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (event,) = calls_of(session)
    assert (event.completion, event.error, event.seconds) == (None, "interrupted", 0.0)
    assert session.trace.totals() == Totals()


async def test_retries_end():
    session = session_over(FLOW, Scripted([Unreachable("gone")] * 10))
    with pytest.raises(Unreachable):
        await session.complete(HELLO)
    assert calls_of(session)[0].attempt == 4


async def test_interrupt_keeps_the_text_and_ends_the_call():
    model = Slow()
    session = session_over(FLOW, model)
    task = asyncio.create_task(session.complete(HELLO))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    (event,) = calls_of(session)
    assert event.completion.message.text == "Half an answer"
    assert event.completion.finish_reason == "interrupted"
    assert model.cancelled


async def test_phases_follow_from_the_reply():
    session = session_over(FLOW, Scripted([call("t"), "Hi", "plan"]))
    for phase in (None, None, "plan"):
        await session.complete(HELLO, phase=phase)
    assert list(Costs.of(session.trace.events).phases) == ["select_tool", "answer", "plan"]


async def test_tools_that_fail_become_messages():
    async def fails(arguments):
        raise ToolError("the shelf is empty")

    async def breaks(arguments):
        raise ZeroDivisionError("oh")

    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    session = session_over(FLOW, Scripted([]), tools=[Tool("fails", fails), Tool("breaks", breaks, number)])
    result = [
        (await session.call_tool(ToolCall(id="1", name=name, arguments=arguments))).text
        for name, arguments in [("fails", {}), ("breaks", {"n": 1}), ("breaks", {"n": "one"}), ("nothing", {})]
    ]
    assert result[0] == "Error: the shelf is empty"
    assert "ZeroDivisionError" in result[1]
    assert "n:" in result[2] and "integer" in result[2]
    assert "there is no tool 'nothing'" in result[3]
    assert session.trace.totals().tool_calls == 4


async def test_an_odd_schema_does_not_stop_a_call():
    async def echo(arguments):
        return str(arguments)

    odd = {"type": "dict", "properties": {"x": {"type": "float"}}}
    session = session_over(FLOW, Scripted([]), tools=[Tool("echo", echo, odd)])
    result = await session.call_tool(ToolCall(id="1", name="echo", arguments={"x": 1.5}))
    assert result.text == "{'x': 1.5}"


async def test_parallel_work_joins_and_latency_is_its_longest_branch():
    async def rest(arguments):
        await asyncio.sleep(arguments["s"])
        return "done"

    session = session_over(FLOW, Scripted(["start", "end"]), tools=[Tool("rest", rest)])
    await session.complete(HELLO)
    calls = [ToolCall(id=str(i), name="rest", arguments={"s": s}) for i, s in enumerate((0.02, 0.06))]
    results = await session.parallel(*(session.call_tool(c) for c in calls))
    assert [r.tool_call_id for r in results] == ["0", "1"]
    await session.complete(HELLO)
    events = session.trace.events
    assert set(events[-1].after) == {e.id for e in events if e.kind == "tool"}
    request = sum(e.seconds for e in events if e.kind == "model_call")
    longest = max(e.seconds for e in events if e.kind == "tool")
    assert critical_path(events) == pytest.approx(request + longest) and longest >= 0.06


@pytest.mark.slow
async def test_parallel_raises_what_failed():
    async def fails():
        raise KeyError("lost")

    async def rests():
        await asyncio.sleep(5)

    session = session_over(FLOW, Scripted([]))
    with pytest.raises(KeyError):
        await session.parallel(fails(), rests())


async def test_memory_is_embedded_counted_and_charged_to_its_phases(tmp_path):
    session = session_over(FLOW, Scripted([]))
    assert (await session.recall("x"), await session.remember("x"), await session.revise("1", "x")) == ((), None, None)
    assert session.trace.events == []
    session.change(memory=sqlite.connect(tmp_path, FlatEmbedder()))
    added = await session.remember("Ann likes tea")
    again = await session.remember("Ann likes tea a lot")
    assert (added.is_new, again.is_new, again.fact.id) == (True, False, added.fact.id)
    (fact,) = await session.recall("tea")
    assert (fact.text, fact.created, fact.score) == ("Ann likes tea", session.now, 1.0)
    revised = await session.revise(fact.id, "Ann likes coffee")
    assert revised.id != fact.id and await session.revise("never given", "x") is None
    totals = session.trace.totals()
    assert (totals.memory_ops, totals.embedding_calls) == (5, 5)
    assert list(Costs.of(session.trace.events).phases) == ["memory_read", "memory_write"]
    assert [event.written for event in session.trace.events if isinstance(event, MemoryOp)] == [
        True,
        False,
        False,
        True,
        False,
    ]


async def test_without_an_index_nothing_is_found():
    assert await session_over(FLOW, Scripted([])).retrieve("x") == ()


async def test_passages_are_kept_in_the_trace():
    session = session_over(FLOW, Scripted([]), ListIndex(OFFSIDE))
    (passage,) = await session.retrieve("offside", doc_ids=["law-11"])
    assert session.turn_passages() == (passage,)
