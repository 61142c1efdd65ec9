"""Responses that the Gemini adapter reads: text, usage, calls, finish reasons, blocked responses."""

from __future__ import annotations

import pytest

from agentlab.core.messages import ToolCall, Usage
from support.fake_gemini import USAGE, chunk, response_of, text
from support.gemini import CLOCK, KEY, SEARCH, USER, agent, ask, result, search

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


async def test_text_streams_and_usage_is_read():
    completion, pieces, fake = await ask(text("Hel", "lo", usage=USAGE))
    assert (completion.message, pieces) == (agent("Hello"), ["Hel", "lo"])
    assert completion.usage == Usage(input_tokens=105, output_tokens=20, cached_tokens=64, reasoning_tokens=8)
    assert (completion.model, completion.finish_reason) == ("served-model", "stop")
    assert (fake.models, fake.headers[0]["x-goog-api-key"]) == (["served"], KEY)


@pytest.mark.parametrize(
    "usage, read",
    [
        (None, Usage()),
        ({"promptTokenCount": 7, "candidatesTokenCount": 2}, Usage(input_tokens=7, output_tokens=2)),
        (
            {"promptTokenCount": 7, "thoughtsTokenCount": 3},
            Usage(input_tokens=7, output_tokens=3, reasoning_tokens=3),
        ),
        ({"toolUsePromptTokenCount": 3}, Usage()),
    ],
)
async def test_missing_count_is_unknown_not_zero(usage, read):
    completion, _, _ = await ask(response_of({"text": "Hi"}, **({"usage": usage} if usage else {})))
    assert completion.usage == read


async def test_last_count_of_a_stream_is_used():
    first = chunk({"text": "Hi"}, usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 1})
    last = chunk(finish="STOP", usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 4})
    completion, _, _ = await ask({"chunks": [first, last]})
    assert completion.usage.output_tokens == 4


async def test_thoughts_are_neither_shown_nor_kept():
    completion, pieces, _ = await ask(response_of({"text": "Hm.", "thought": True}, {"text": "Yes."}))
    assert (completion.message, pieces) == (agent("Yes."), ["Yes."])


async def test_calls_are_read_with_their_names_ids_and_signatures():
    response = response_of(
        {"functionCall": {"name": "docs_search", "args": {"q": "a"}, "id": "given"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "_2nd_clock"}},
        {"functionCall": {"name": "unknown", "args": {"n": [1, 2.5, None]}}},
    )
    before = (USER, agent("", search("call_2"), search("x")), result("call_2", "R"), result("x", "R"))
    completion, pieces, _ = await ask(response, *before, tools=(SEARCH, CLOCK))
    assert completion.message == agent(
        "",
        search("given", arguments={"q": "a"}, extra={"gemini": {"id": True, "signature": "c2ln"}}),
        ToolCall(id="call_4", name="2nd clock"),
        ToolCall(id="call_5", name="unknown", arguments={"n": [1, 2.5, None]}),
    )
    assert (completion.finish_reason, pieces) == ("tool_calls", [])


async def test_a_made_up_id_is_none_of_the_conversation():
    before = (USER, agent("", search("call_2")), result("call_2", "R"))
    twice = {"functionCall": {"name": "docs_search", "id": "call_2"}}
    completion, _, _ = await ask(response_of(twice, twice), *before)
    assert [call.id for call in completion.message.tool_calls] == ["call_3", "call_4"]
    again, _, _ = await ask(response_of(twice, twice), *before)
    assert again == completion


@pytest.mark.parametrize(
    "reason, finish",
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("OTHER", "other")]
    + [(reason, "content_filter") for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")],
)
async def test_finish_reasons(reason, finish):
    completion, _, _ = await ask(response_of({"text": "Well"}, finish=reason))
    assert (completion.finish_reason, completion.message.text) == (finish, "Well")


async def test_a_response_or_a_prompt_that_was_blocked_is_an_empty_one():
    completion, pieces, _ = await ask(response_of(finish="SAFETY"))
    assert (completion.finish_reason, completion.message, pieces) == ("content_filter", agent(), [])
    feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}
    completion, _, _ = await ask({"chunks": [feedback]})
    assert (completion.finish_reason, completion.message) == ("content_filter", agent())
    assert completion.usage == Usage(input_tokens=7)
