"""Folds over events: totals with unknown parts, conservation, the longest path, rows that survive a round trip."""

from __future__ import annotations

import gc
import json
import weakref
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agentlab.core.errors import ConfigError, RunError
from agentlab.core.events import (
    PHASES,
    Decision,
    EmbeddingCall,
    Event,
    MemoryOp,
    ModelCall,
    Notice,
    Search,
    Step,
    ToolRun,
    from_row,
    to_row,
)
from agentlab.core.messages import (
    Completion,
    Fact,
    Message,
    Passage,
    Request,
    ToolCall,
    ToolSpec,
    Usage,
    from_json,
    to_json,
)
from agentlab.core.trace import Costs, Totals, Trace, check_totals, critical_path, fold

REQUEST = Request(messages=(Message(role="user", text="hi"),))
USAGE = Usage(input_tokens=10, output_tokens=2)


def model_call(number: int, seconds: float = 1.0, usage: Usage = USAGE, **more) -> ModelCall:
    facts = {"turn": 0, "phase": "answer", "model": "m", "request": REQUEST, "cost_usd": 0.5, **more}
    completion = Completion(message=Message(role="agent", text="yes"), usage=usage)
    return ModelCall(id=number, seconds=seconds, **{"completion": completion, **facts})


def test_an_unknown_part_makes_the_sum_unknown():
    events = [model_call(0), model_call(1, usage=Usage(output_tokens=3), cost_usd=None)]
    totals = fold(events)
    assert (totals.llm_calls, totals.input_tokens, totals.output_tokens, totals.cost_usd) == (2, None, 5, None)


def test_failed_call_is_in_the_ledger_and_not_counted():
    events = [model_call(0, completion=None, error="RateLimited", cost_usd=None, seconds=0.0)]
    assert fold(events) == Totals()


def test_a_costed_event_needs_a_known_phase():
    with pytest.raises(ValueError, match="known phases"):
        model_call(0, phase="thinking")


def test_seconds_count_once_where_a_tool_searches():
    events = [
        ToolRun(id=0, turn=0, phase="tool", seconds=3.0, call=ToolCall(id="c", name="t")),
        EmbeddingCall(id=1, turn=0, phase="retrieve", parent=0, seconds=1.0, model="e"),
        Search(id=2, turn=0, phase="retrieve", parent=0, after=(1,), seconds=2.0, query="q"),
    ]
    assert fold(events).seconds == 3.0
    assert critical_path(events) == 3.0


def test_latency_is_the_longest_path_not_the_sum():
    events = [
        model_call(0, seconds=1.0),
        ToolRun(id=1, turn=0, phase="tool", after=(0,), seconds=5.0, call=ToolCall(id="a", name="t")),
        ToolRun(id=2, turn=0, phase="tool", after=(0,), seconds=2.0, call=ToolCall(id="b", name="t")),
        model_call(3, seconds=1.5, after=(1, 2)),
    ]
    assert critical_path(events) == 7.5
    assert fold(events).seconds == 9.5


def test_waiting_is_not_latency():
    assert critical_path([model_call(0, seconds=1.0, waited=30.0)]) == 1.0


@pytest.mark.parametrize("break_it", ["duplicate", "orphan"])
def test_conservation_finds_a_ledger_that_cannot_be_right(break_it):
    events: list[Event] = [model_call(0), model_call(1, after=(0,))]
    check_totals(events, "here")
    events.append(model_call(0) if break_it == "duplicate" else model_call(2, parent=9))
    with pytest.raises(RunError, match="here"):
        check_totals(events, "here")


numbers = st.one_of(st.none(), st.integers(0, 10**6))


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(PHASES), numbers, numbers, st.none() | st.floats(0, 1e3)),
        max_size=30,
    )
)
def test_phases_turns_and_calls_add_up_to_the_totals(rows):
    trace = Trace("f", "c")
    for turn, phase, tokens_in, tokens_out, cost in rows:
        usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out, cached_tokens=tokens_in)
        trace.append(model_call(trace.next_id(), usage=usage, turn=turn, phase=phase, cost_usd=cost))
    trace.check()
    assert sum((t.llm_calls for t in Costs.of(trace.events).phases.values()), 0) == len(rows)


def test_every_kind_of_event_survives_its_row():
    passage = Passage(id="d#0", doc_id="d", title="T", text="x", start=0, end=1, score=0.5)
    call = ToolCall(id="c", name="t", arguments={"a": [1, None]}, extra={"signature": "s"})
    fact = Fact(id="f", text="x", created=datetime(2026, 1, 1), score=0.5)
    shared = {"turn": 1, "start": 0.25, "seconds": 0.5, "after": (0,), "parent": 0}
    full = Request(
        messages=(Message(role="agent", tool_calls=(call,), extra={"k": 1}),),
        tools=(ToolSpec(name="t", description="d", parameters={"type": "object"}),),
        tool_choice="t",
        output_schema={"type": "object"},
        temperature=0.0,
        seed=0,
        max_tokens=5,
    )
    events = [
        model_call(1, request=full, **{k: v for k, v in shared.items() if k != "seconds"}),
        EmbeddingCall(id=2, phase="retrieve", model="e", **shared),
        Search(id=3, phase="retrieve", query="q", doc_ids=(), passages=(passage,), **shared),
        ToolRun(id=4, phase="tool", call=call, output="o", error="e", **shared),
        MemoryOp(id=5, phase="memory_read", op="recall", text="t", facts=(fact,), **shared),
        Decision(id=6, name="n", choice=False, why="w", **shared),
        Notice(id=7, name="n", text="t", data={"a": 1}, **shared),
        Step(id=8, name="n", **shared),
    ]
    for event in events:
        assert from_row(json.loads(json.dumps(to_row(event)))) == event


@pytest.mark.parametrize("field", Request.__struct_fields__)
def test_a_request_survives_json_field_by_field(field):
    values = {
        "messages": (Message(role="user", text="other", name="Ann"),),
        "tools": (ToolSpec(name="t", description="", parameters={}),),
        "tool_choice": "none",
        "output_schema": {},
        "temperature": 0.0,
        "seed": 0,
        "max_tokens": 1,
        "thought_tokens": 2,
    }
    changed = structs.replace(REQUEST, **{field: values[field]})
    assert from_json(Request, json.loads(json.dumps(to_json(changed)))) == changed


class Watched(Step, frozen=True, kw_only=True, weakref=True):
    """Step with weak references, which reveal its deletion."""


def test_critical_path_keeps_no_reference_to_events():
    """A reference cycle would keep all events of a run until the garbage collector runs."""
    events = [Watched(id=0, turn=0, name="outer"), model_call(1, parent=0), model_call(2, parent=0, after=(1,))]
    reference = weakref.ref(events[0])
    gc.disable()
    try:
        assert critical_path(events) == 2.0
        del events
        assert reference() is None
    finally:
        gc.enable()


def test_turns_are_counted_from_1():
    trace = Trace(flow="f", conversation="c")
    with pytest.raises(ConfigError, match="turn 0: turns are counted from 1"):
        trace.steps(0)
    assert trace.turns() == [] and trace.of_turn(1) == []
