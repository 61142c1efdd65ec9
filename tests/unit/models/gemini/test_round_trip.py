"""Properties of every conversation with Gemini: it is accepted, complete, and returned unchanged.

Hypothesis runs in a thread, so that its examples can call the local server.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentlab.core.messages import Completion, Message, Request, ToolCall, from_json, to_json
from agentlab.models.provider import wire_names
from support.fake_gemini import FakeGemini, response_of, serving, text
from support.gemini import CLOCK, SEARCH, USER, agent, model, result

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(words, values, max_size=3)
tool_names = st.sampled_from(["docs.search", "docs_search", "2nd clock", "t" * 70, "t" * 69, "é"])
signatures = st.binary(min_size=1, max_size=8).map(lambda raw: base64.b64encode(raw).decode())


@st.composite
def rounds(draw: st.DrawFn) -> list[Message]:
    """Messages of one side, or calls with a result each, in any order."""
    role = draw(st.sampled_from(["user", "system", "agent", "calls"]))
    if role != "calls":
        return [Message(role=role, text=draw(words))]
    calls = []
    for number in range(draw(st.integers(1, 3))):
        stored = draw(st.fixed_dictionaries({}, optional={"signature": signatures, "id": st.just(True)}))
        made = ToolCall(id=f"call_{number}", name=draw(tool_names), extra={"gemini": stored} if stored else {})
        broken = draw(st.booleans())
        more = {"malformed": draw(words)} if broken else {"arguments": draw(arguments)}
        calls.append(replace(made, **more))
    results = [result(call.id, draw(words | st.just("Error: no")), call.name) for call in calls]
    return [agent(draw(words), *calls), *draw(st.permutations(results))]


conversations = st.lists(rounds(), max_size=5).map(lambda made: tuple(message for few in made for message in few))


@st.composite
def turns_of_the_model(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Parts as the API sends them, in any order."""
    parts = []
    for number in range(draw(st.integers(1, 5))):
        signed = draw(st.fixed_dictionaries({}, optional={"thoughtSignature": signatures}))
        if draw(st.booleans()):
            given = draw(st.fixed_dictionaries({}, optional={"id": st.just(f"given {number}")}))
            name = draw(st.sampled_from(["docs_search", "_2nd_clock"]))
            parts.append({"functionCall": {"name": name, "args": draw(arguments), **given}, **signed})
        else:
            parts.append({"text": draw(words), **signed})
    return parts


def plainly(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts with signatures as bytes, and the pieces of a text put together again."""
    plain: list[dict[str, Any]] = []
    for part in parts:
        if "thoughtSignature" in part:
            part = {
                **part,
                "thoughtSignature": base64.urlsafe_b64decode(part["thoughtSignature"].translate({43: 45, 47: 95})),
            }
        elif part.get("text") == "":
            continue
        if plain and part.keys() == plain[-1].keys() == {"text"}:
            plain[-1] = {"text": plain[-1]["text"] + part["text"]}
        else:
            plain.append(part)
    return plain


async def on_the_wire(respond: Callable[[dict[str, Any]], Any], run: Callable[[FakeGemini, Any], None]) -> None:
    """Run a property in a thread, with the server and a function that asks it."""
    async with serving(respond) as fake:
        adapter = model(fake)
        loop = asyncio.get_running_loop()

        def complete(request: Request) -> Completion:
            return asyncio.run_coroutine_threadsafe(adapter.complete(request, lambda piece: None), loop).result(20)

        try:
            await asyncio.to_thread(run, fake, complete)
        finally:
            await adapter.close()


def round_of(messages: tuple[Message, ...], at: int) -> list[str]:
    """The results of the calls of message `at`, in the order of the calls."""
    calls = messages[at].tool_calls
    after = messages[at + 1 : at + 1 + len(calls)]
    return [next(m.text for m in after if m.tool_call_id == call.id) for call in calls]


@pytest.mark.slow
async def test_every_conversation_is_accepted_and_arrives_whole():
    def run(fake: FakeGemini, complete: Callable[[Request], Completion]) -> None:
        @given(conversations)
        def holds(messages: tuple[Message, ...]) -> None:
            complete(Request(messages=messages))
            body = fake.seen[-1]
            lines = [part for content in body["contents"] for part in content["parts"]]
            texts = [part["text"] for part in lines if "text" in part]
            spoken = [m.text for m in messages if m.role != "tool" and m.text]
            instructed = [part["text"] for part in body.get("systemInstruction", {}).get("parts", [])]
            opened = ["Begin."] if body["contents"][0]["parts"] == [{"text": "Begin."}] else []
            assert [*opened, *spoken[len(instructed) :]] == texts and spoken[: len(instructed)] == instructed

            made = [call for m in messages for call in m.tool_calls]
            names = wire_names(call.name for call in made)
            called = [part for part in lines if "functionCall" in part]
            for call, part in zip(made, called, strict=True):
                wanted = call.arguments if call.malformed is None else {"malformed": call.malformed}
                assert part["functionCall"]["name"] == names[call.name]
                assert json.dumps(part["functionCall"]["args"]) == json.dumps(wanted)
                stored = call.extra.get("gemini", {})
                assert part["functionCall"].get("id") == (call.id if "id" in stored else None)
                assert plainly([part]) == plainly(
                    [part | ({"thoughtSignature": stored["signature"]} if "signature" in stored else {})]
                )
                assert ("thoughtSignature" in part) == ("signature" in stored)

            results = [text for at in range(len(messages)) for text in round_of(messages, at)]
            sent = [part["functionResponse"]["response"] for part in lines if "functionResponse" in part]
            assert sent == [{"error" if r.startswith("Error:") else "result": r} for r in results]

        holds()

    await on_the_wire(lambda body: text("ok"), run)


@pytest.mark.slow
async def test_model_message_returns_unchanged():
    parts: list[dict[str, Any]] = []

    def run(fake: FakeGemini, complete: Callable[[Request], Completion]) -> None:
        @given(turns_of_the_model())
        def holds(made: list[dict[str, Any]]) -> None:
            parts[:] = made
            message = complete(Request(messages=(USER,), tools=(SEARCH, CLOCK))).message
            assert from_json(Message, json.loads(json.dumps(to_json(message)))) == message
            assert message.text == "".join(part.get("text", "") for part in made)
            results = (result(call.id, "R", call.name) for call in message.tool_calls)
            complete(Request(messages=(USER, message, *results, USER), tools=(SEARCH, CLOCK)))
            contents = fake.seen[-1]["contents"]
            assert plainly(contents[1]["parts"] if len(contents) > 1 else []) == plainly(made)

        holds()

    await on_the_wire(lambda body: response_of(*parts), run)
