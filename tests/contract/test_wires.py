"""One scripted conversation over three wire formats: the coordinator stores the same history for each provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import Unreachable
from agentlab.core.messages import Message, Request, ToolSpec, UserTurn
from agentlab.flows import coordinator
from agentlab.models import openai
from agentlab.models.gemini import GeminiModel
from agentlab.models.keys import KeyRing
from agentlab.models.local.model import LocalModel
from support import fake_gemini, fake_openai
from support.coordinators import history
from support.doubles import session_over
from support.wired import Wired

# Of the SDK, about its own transport.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SCRIPT: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("", [("weather.now", {"city": "Bern"}), ("weather.now", {"city": "Bâle"})]),
    ("Rain in both.", []),
    ("", [("weather.now", {"town": "?"})]),
    ("", [("weather.now", {"city": "Genf"})]),
    ('Sun, "finally".', []),
    ("Good night.", []),
]
"""Replies of the model, call by call: text and tool calls."""


TEXTS = ["Weather in Bern and Bâle?", "And in Genf?", "Thanks!"]


class Weather:
    spec = ToolSpec(name="weather.now", description="Tells the weather.", parameters=CITY)

    def run(self, arguments, session):
        return f"{arguments['city']}: {'sun' if arguments['city'] == 'Genf' else 'rain'}"


def openai_response(text: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    if not calls:
        return fake_openai.text(text, usage=fake_openai.USAGE)
    parts = [
        {"index": n, "id": f"call_{id(calls)}_{n}", "function": {"name": "weather_now", "arguments": json.dumps(given)}}
        for n, (_, given) in enumerate(calls)
    ]
    return {"deltas": [{"tool_calls": parts}], "finish": "tool_calls"}


def local_response(text: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the output of the constrained model: an answer, or a call with further calls inside."""
    if not calls:
        return fake_openai.text(json.dumps({"tool": "answer", "text": text}))
    first, *more = ({"tool": name, "arguments": given} for name, given in calls)
    return fake_openai.text(json.dumps({**first, "more": more} if more else first))


def gemini_response(text: str, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    return fake_gemini.response_of(
        *([{"text": text}] if text else []),
        *({"functionCall": {"name": name, "args": given}} for name, given in calls),
    )


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=9)), min_size=1, max_size=3))
def test_calls_that_the_embedded_model_writes_are_read_as_they_were_meant(arguments):
    """The model's prompt contains its earlier calls and their results, in the form of its replies."""
    calls = [("weather.now", given_arguments) for given_arguments in arguments]
    (delta,) = local_response("", calls)["deltas"]
    model = LocalModel("any", Path)
    request = Request(messages=(Message(role="user", text="?"),), tools=(Weather.spec,))
    wired = model.translate(request)
    assert wired.own_form is not None
    for choice in ({"delta": {"content": character}} for character in delta["content"]):
        wired.own_form.feed(wired.chat.feed(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()))
    wired.chat.feed(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    made = model.parse(wired, request).message.tool_calls
    assert [(call.name, call.arguments) for call in made] == calls


async def talk(stack: AsyncExitStack, wire: str) -> list[dict[str, Any]]:
    script = iter(SCRIPT)
    if wire == "gemini":
        google = await stack.enter_async_context(fake_gemini.serving(lambda body: gemini_response(*next(script))))
        model: Any = GeminiModel("any", base_url=google.base_url, keys=KeyRing(["key-of-a-test"]))
    else:
        respond = openai_response if wire == "openai" else local_response
        server = await stack.enter_async_context(fake_openai.serving(lambda body: respond(*next(script))))
        if wire == "openai":
            model = openai.connect("any", base_url=server.base_url, api_key="key-of-a-test")
        else:
            model = Wired(int(server.base_url.split(":")[2].split("/")[0]))
    stack.push_async_callback(model.close)
    session = session_over(coordinator, model, tools=[Weather()])
    for turn, text in enumerate(TEXTS):
        session.begin_turn(turn)
        await coordinator.respond(UserTurn(text=text), session)
    assert next(script, None) is None
    return numbered(history(session).request_messages())


def numbered(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return plain messages with tool call ids numbered by appearance, since providers choose different ids."""
    results: dict[str | None, int] = {}
    return [
        {
            "role": message.name if message.role == "agent" else message.role,
            "content": message.text,
            "tool_calls": [
                (results.setdefault(call.id, len(results)), call.name, call.arguments, call.malformed)
                for call in message.tool_calls
            ],
            "call": results[message.tool_call_id] if message.role == "tool" else None,
        }
        for message in messages
    ]


@pytest.mark.parametrize("wire", ["local", "gemini"])
async def test_the_history_is_the_same_through_every_wire(wire):
    async with AsyncExitStack() as stack:
        reference = await talk(stack, "openai")
        assert await talk(stack, wire) == reference
    assert [m["role"] for m in reference] == [
        *("user", "miyori", "tool", "tool", "miyori"),
        *("user", "miyori", "tool", "miyori", "tool", "miyori"),
        *("user", "miyori"),
    ]
    assert [m["call"] for m in reference if m["role"] == "tool"] == [0, 1, 2, 3]
    assert reference[2]["content"] == "Bern: rain"
    assert reference[7]["content"].startswith("Error:")


async def test_broken_stream_leaves_a_usable_history():
    broken = {"deltas": [{"content": "Rain in"}], "drop": True}
    responses = iter([openai_response("", SCRIPT[0][1]), broken, openai_response("Here again.", [])])
    async with fake_openai.serving(lambda body: next(responses)) as server:
        model = openai.connect("any", base_url=server.base_url, api_key="key-of-a-test")
        session = session_over(coordinator, model, tools=[Weather()], retries=0)
        session.begin_turn(0)
        with pytest.raises(Unreachable):
            await coordinator.respond(UserTurn(text=TEXTS[0]), session)
        session.begin_turn(1)
        assert (await coordinator.respond(UserTurn(text="And now?"), session)).text == "Here again."
        await model.close()
    assert [m["role"] for m in server.seen[-1]["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "user")
    ]


async def test_thought_signatures_go_back_with_their_calls_through_the_coordinator():
    signed = {"functionCall": {"name": "weather.now", "args": {"city": "Bern"}}, "thoughtSignature": "c2lnbmVk"}
    responses = iter([fake_gemini.response_of(signed), fake_gemini.text("Rain.")])
    async with fake_gemini.serving(lambda body: next(responses)) as google:
        model = GeminiModel("any", base_url=google.base_url, keys=KeyRing(["key-of-a-test"]))
        session = session_over(coordinator, model, tools=[Weather()])
        session.begin_turn(0)
        await coordinator.respond(UserTurn(text="Weather in Bern?"), session)
        await model.close()
    (call,) = (p for c in google.seen[1]["contents"] for p in c["parts"] if "functionCall" in p)
    assert call["thoughtSignature"] == "c2lnbmVk"
