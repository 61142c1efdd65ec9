"""Conversations as strict servers take them, whatever has happened in them before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.models import openai
from support.fake_openai import serving, text
from support.histories import histories
from support.strict_server import refusal, strictly

LOOKUP = ToolSpec(name="lookup", description="Looks things up.", parameters={"type": "object", "properties": {}})


def system(words: str) -> Message:
    return Message(role="system", text=words)


def user(words: str) -> Message:
    return Message(role="user", text=words)


def agent(words: str = "", *calls: ToolCall, **extra: Any) -> Message:
    return Message(role="agent", text=words, tool_calls=calls, extra=extra)


def lookup(call_id: str, **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name="lookup", **more)


def result(call_id: str, words: str = "42") -> Message:
    return Message(role="tool", text=words, tool_call_id=call_id, name="lookup")


async def sent(*messages: Message, tools: tuple[ToolSpec, ...] = (LOOKUP,), **more: Any) -> dict[str, Any]:
    """Return the body that a strict server accepted."""
    own = more.pop("own", set())
    async with serving(lambda body: strictly(text("Hi"), body, own=own)) as fake:
        model = openai.connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        try:
            await model.complete(Request(messages=messages, tools=tools, **more), lambda piece: None)
        finally:
            await model.close()
    (body,) = fake.seen
    return body


def plain(body: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in body["messages"]]


CALLED = ("assistant", None)
ACCEPTED = {
    "a failed turn": ([system("S"), user("One?"), user("Two?")], [("system", "S"), ("user", "One?\n\nTwo?")]),
    "empty replies": (
        [user("One?"), agent(), user("Two?"), agent("  \n"), user("Three?")],
        [("user", "One?\n\nTwo?\n\nThree?")],
    ),
    "system text in the middle": (
        [system("S"), user("Hi."), agent("Hello."), system("She is Ann."), user("My name?")],
        [("system", "S\n\nShe is Ann."), ("user", "Hi."), ("assistant", "Hello."), ("user", "My name?")],
    ),
    "two system texts": ([system("S"), system("T"), user("Hi.")], [("system", "S\n\nT"), ("user", "Hi.")]),
    "system text alone": ([system("Open the chat.")], [("system", "Open the chat."), ("user", "Begin.")]),
    "a greeting": (
        [system("S"), agent("How can I help?"), user("Capital?")],
        [("system", "S"), ("user", "Begin."), ("assistant", "How can I help?"), ("user", "Capital?")],
    ),
    "an interrupted reply": (
        [user("Count."), agent("One, two")],
        [("user", "Count."), ("assistant", "One, two"), ("user", "Go on.")],
    ),
    "a turn that failed after its tool": (
        [user("Look."), agent("", lookup("a")), result("a"), user("Say hi.")],
        [("user", "Look."), CALLED, ("tool", "42"), ("assistant", "I see."), ("user", "Say hi.")],
    ),
    "a result without its call": (
        [result("a"), agent("It is 42."), user("Sure?")],
        [("user", "Begin."), ("assistant", "It is 42."), ("user", "Sure?")],
    ),
    "two results in a row": (
        [user("Look."), agent("", lookup("a"), lookup("b")), result("a", "1"), result("b", "2")],
        [("user", "Look."), CALLED, ("tool", "1"), ("tool", "2")],
    ),
    "a tool that returns nothing": (
        [user("Delete."), agent("", lookup("a")), result("a", "")],
        [("user", "Delete."), CALLED, ("tool", "")],
    ),
    "nothing to mend": (
        [system("S"), user("One?"), agent("1"), user("  Two?\n")],
        [("system", "S"), ("user", "One?"), ("assistant", "1"), ("user", "  Two?\n")],
    ),
    "two replies": (
        [user("Hi."), agent("Hello."), agent("I am Ann."), user("Who?")],
        [("user", "Hi."), ("assistant", "Hello.\n\nI am Ann."), ("user", "Who?")],
    ),
    "words and then a call": (
        [user("Look."), agent("I will."), agent("", lookup("a")), result("a")],
        [("user", "Look."), ("assistant", "I will."), ("tool", "42")],
    ),
    "calls parted by a result": (
        [user("Look."), agent("", lookup("a")), result("a", "1"), agent("", lookup("b")), result("b", "2")],
        [("user", "Look."), CALLED, ("tool", "1"), CALLED, ("tool", "2")],
    ),
    "half a character": (
        [user("Read \ud83d"), agent("", lookup("a", arguments={"q": "\ud83d"})), result("a", "ab\ud83d")],
        [("user", "Read \ufffd"), CALLED, ("tool", "ab\ufffd")],
    ),
    "a number of a call that comes again": (
        [user("1?"), agent("", lookup("c")), user("2?"), agent("", lookup("c")), result("c", "two")],
        [
            ("user", "1?"),
            CALLED,
            ("tool", "Error: the call was interrupted before it had a result."),
            ("assistant", "I see."),
            ("user", "2?"),
            CALLED,
            ("tool", "two"),
        ],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
async def test_history_has_a_form_that_every_server_accepts(case):
    message, expected = ACCEPTED[case]
    assert plain(await sent(*message)) == expected


async def test_a_cancelled_call_is_answered_in_its_position():
    body = await sent(user("Look."), agent("", lookup("a"), lookup("b")), result("a"), user("And?"))
    answers = [(m["tool_call_id"], m["content"]) for m in body["messages"] if m["role"] == "tool"]
    assert answers == [("a", "42"), ("b", "Error: the call was interrupted before it had a result.")]


@pytest.mark.parametrize("written", ['{"q": "a "b""}', "null", "[]", '{"y": NaN}'])
async def test_arguments_are_an_object_and_the_result_has_the_written_text(written):
    body = await sent(user("Look."), agent("", lookup("a", malformed=written)), result("a", "Error: no JSON"))
    _, called, answered = body["messages"]
    assert called["tool_calls"][0]["function"]["arguments"] == "{}"
    assert answered["content"] == f"Error: no JSON\n\nThe arguments read: {written}"


async def test_good_arguments_keep_every_digit_and_letter():
    given = {"id": 12345678901234567890, "x": 1.0, "名": "é"}
    body = await sent(user("Look."), agent("", lookup("a", arguments=given)), result("a"))
    arguments = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"id": 12345678901234567890, "x": 1.0, "名": "é"}'


async def test_a_long_id_is_short_on_the_wire_and_the_same_for_call_and_result():
    body = await sent(user("Look."), agent("", lookup("toolu_" + "x" * 60)), result("toolu_" + "x" * 60))
    _, called, answered = body["messages"]
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"] and len(answered["tool_call_id"]) <= 40


async def test_only_requested_server_data_is_sent_back():
    thought = agent("", lookup("a", extra={"openai": {"google": {"thought_signature": "c2ln"}}}))
    row = {"openai": {"reasoning_content": "I need the tool."}, "gemini": {"parts": []}}
    message = Message(role="agent", tool_calls=thought.tool_calls, extra=row)
    body = await sent(user("Look."), message, result("a"), own={"reasoning_content"})
    called = body["messages"][1]
    assert called["reasoning_content"] == "I need the tool." and "gemini" not in called
    assert called["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    body = await sent(user("Hi."), agent("Hello.", gemini={"parts": []}), user("Look."))
    assert set(body["messages"][1]) == {"role", "content"}


@pytest.mark.parametrize("thought", ["I need it.", "", None])
async def test_a_thought_beside_a_call_goes_back_though_it_is_empty_and_none_does_where_none_came(thought):
    part = {"index": 0, "id": "a", "function": {"name": "lookup", "arguments": "{}"}}
    calling = {"deltas": [{"tool_calls": [part]} | ({} if thought is None else {"reasoning_content": thought})]}
    answers = iter([{**calling, "finish": "tool_calls"}, text("42.")])
    async with serving(lambda body: next(answers)) as fake:
        model = openai.connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        completion = await model.complete(Request(messages=(user("Look."),), tools=(LOOKUP,)), lambda piece: None)
        request = Request(messages=(user("Look."), completion.message, result("a")), tools=(LOOKUP,))
        await model.complete(request, lambda piece: None)
        await model.close()
    assert fake.seen[-1]["messages"][1].get("reasoning_content") == thought


@pytest.mark.parametrize("tools", [(LOOKUP,), ()], ids=["listed", "not listed"])
async def test_tools_stay_listed_where_none_may_be_called(tools):
    texts = [user("Look."), agent("", lookup("a")), result("a"), agent("It is 42."), user("Sum up.")]
    body = await sent(*texts, tools=tools, tool_choice="none")
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["lookup"], "none")


@given(histories(), st.booleans())
def test_any_history_is_accepted_and_no_text_is_lost(history, begins_with_system_text):
    messages = [system("S")] * begins_with_system_text + list(history.request_messages())
    model = openai.connect("any", base_url="http://127.0.0.1", api_key="key-of-a-test")
    body = model.translate(Request(messages=messages))
    assert refusal(body) is None
    wired = json.dumps(body["messages"])
    assert all(json.dumps(message.text)[1:-1] in wired for message in messages if message.text.strip())
