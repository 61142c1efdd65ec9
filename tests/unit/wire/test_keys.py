"""Keys of requests: everything that reaches the provider is in them, and nothing else."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.wire.keys import in_flight_key
from support.requests import REQUESTS, key


def flips(request):
    """The request with each field changed in turn."""
    first = request.messages[0]
    other = Message(role="user", text="another")
    yield replace(request, messages=(replace(first, text=first.text + "x"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, role="tool"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, name=f"{first.name}x"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, extra={"signature": "x"}), *request.messages[1:]))
    yield replace(request, messages=(*request.messages, other))
    for at, call in enumerate(first.tool_calls):
        for changed in (
            replace(call, name=call.name + "x"),
            replace(call, arguments={**call.arguments, "new key": 1}),
            replace(call, malformed="{"),
            replace(call, extra={"signature": "x"}),
        ):
            calls = (*first.tool_calls[:at], changed, *first.tool_calls[at + 1 :])
            yield replace(request, messages=(replace(first, tool_calls=calls), *request.messages[1:]))
    tool = ToolSpec(name="another tool", description="", parameters={})
    yield replace(request, tools=(*request.tools, tool))
    for at, offered in enumerate(request.tools):
        for changed in (
            replace(offered, name=offered.name + "x"),
            replace(offered, description=offered.description + "x"),
            replace(offered, parameters={**offered.parameters, "new key": 1}),
        ):
            yield replace(request, tools=(*request.tools[:at], changed, *request.tools[at + 1 :]))
    if len(request.tools) == 2:
        yield replace(request, tools=request.tools[::-1])
    yield replace(request, tool_choice="required")
    yield replace(request, output_schema={**(request.output_schema or {}), "new key": 1})
    yield replace(request, temperature=(request.temperature or 0) + 0.5)
    yield replace(request, seed=(request.seed or 0) + 1)
    yield replace(request, max_tokens=(request.max_tokens or 0) + 1)


@given(REQUESTS)
def test_a_change_of_any_field_changes_the_key(request_):
    seen = [key(request_), *map(key, flips(request_))]
    seen += [key(request_, model="n"), key(request_, endpoint="e"), key(request_, epoch=1), key(request_, repeat=1)]
    assert len(set(seen)) == len(seen)


@given(REQUESTS)
def test_running_request_is_found_only_by_an_equal_one(request_):
    mine = in_flight_key("m", "compatible", request_, 0)
    others = [in_flight_key("m", "compatible", changed, 0) for changed in flips(request_)]
    others += [in_flight_key("n", "compatible", request_, 0), in_flight_key("m", "e", request_, 0)]
    others += [in_flight_key("m", "compatible", request_, 1)]
    assert mine not in others and len(set(others)) == len(others)
    assert mine == in_flight_key("m", "compatible", deepcopy(request_), 0)


def test_half_a_surrogate_pair_is_a_request_like_any_other():
    one, other = (Request(messages=(Message(role="user", text=f"\ud800{end}"),)) for end in "ab")
    assert in_flight_key("m", "", one, 0) != in_flight_key("m", "", other, 0)


@given(REQUESTS, st.randoms(use_true_random=False))
def test_volatile_fields_do_not_change_the_key(request_, random):
    names: dict[str, str] = {}

    def renamed(old: str) -> str:
        return names.setdefault(old, f"id-{random.random()}-{len(names)}")

    messages = []
    for message in request_.messages:
        calls = tuple(replace(call, id=renamed(call.id)) for call in message.tool_calls)
        messages.append(replace(message, tool_calls=calls, extra={"id": "msg_1", "created": random.random()}))
    plain = replace(request_, messages=tuple(replace(m, extra={"id": "msg_0"}) for m in request_.messages))
    assert key(replace(request_, messages=tuple(messages))) == key(plain)


def test_which_result_answers_which_call_is_part_of_the_key():
    calls = (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    results = [Message(role="tool", text=t, tool_call_id=i) for t, i in (("1", "a"), ("2", "b"))]
    crossed = [Message(role="tool", text=t, tool_call_id=i) for t, i in (("1", "b"), ("2", "a"))]
    message = Message(role="agent", tool_calls=calls)
    assert key(Request(messages=(message, *results))) != key(Request(messages=(message, *crossed)))
