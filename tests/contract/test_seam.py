"""Every adapter returns valid counts and known values, or an error to retry, for any response of a server."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from agentlab.core.constants import USAGE_UNKNOWN
from agentlab.core.errors import Retryable, ServerFault
from agentlab.core.events import ModelCall, Notice
from agentlab.core.messages import Completion, Message, ToolCall, Usage
from agentlab.core.prices import Price, PriceTable
from agentlab.evals.store.rows import encode
from agentlab.flows import rag_only
from agentlab.models import openai
from agentlab.models.gemini import GeminiModel
from agentlab.models.keys import KeyRing
from agentlab.models.scripted import Scripted
from agentlab.session.session import Session
from agentlab.wire.response_validation import validate_completion
from support import fake_gemini, fake_openai
from support.doubles import session_over
from support.wired import Wired

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
ADAPTERS = ["openai", "gemini", "local", "scripted"]
PRICES = PriceTable(models={"*": Price(input=1, cached_input=0.1, output=2)}, dated="2026")


async def connected(
    stack: AsyncExitStack, adapter: str, openai_response: Any, gemini_response: Any, own: Any
) -> Session:
    if adapter == "scripted":
        model: Any = Scripted([own], loop=True)
    elif adapter == "gemini":
        google = await stack.enter_async_context(fake_gemini.serving(lambda body: gemini_response))
        model = GeminiModel("any", base_url=google.base_url, keys=KeyRing(["key-of-a-test"]))
    else:
        server = await stack.enter_async_context(fake_openai.serving(lambda body: openai_response))
        if adapter == "openai":
            model = openai.connect("any", base_url=server.base_url, api_key="key-of-a-test")
        else:
            model = Wired(int(server.base_url.split(":")[2].split("/")[0]))
    stack.push_async_callback(model.close)
    session = session_over(rag_only, model)
    session.change(price=PRICES.cost)
    session.begin_turn(0)
    return session


async def with_usage(stack: AsyncExitStack, adapter: str, given: Any, made: Any, cached: Any = 0) -> Session:
    return await connected(
        stack,
        adapter,
        fake_openai.text(
            "Hi",
            usage={
                "prompt_tokens": given,
                "completion_tokens": made,
                "total_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        ),
        {
            "chunks": [
                fake_gemini.chunk({"text": "Hi"}, finish="STOP")
                | {
                    "usageMetadata": {
                        "promptTokenCount": given,
                        "candidatesTokenCount": made,
                        "cachedContentTokenCount": cached,
                    }
                }
            ]
        },
        Completion(
            message=Message(role="agent", text="Hi"),
            usage=Usage(input_tokens=given, output_tokens=made, cached_tokens=cached),
        ),
    )


def notices_of(session: Session) -> list[Notice]:
    return [event for event in session.trace.events if isinstance(event, Notice) and event.name == USAGE_UNKNOWN]


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("odd", [-5, 10**400, 10**10, float("nan"), float("inf"), "many", 1.5, [7], {"n": 7}])
async def test_impossible_count_is_unknown_and_reported_once(adapter, odd):
    async with AsyncExitStack() as stack:
        session = await with_usage(stack, adapter, odd, 20)
        for _ in range(2):
            try:
                assert (await session.complete("Hello")).text == "Hi"
            except Retryable:
                # Its SDK reads no response with such a count.
                assert adapter == "gemini" and not isinstance(odd, int)
                return
        calls = [event for event in session.trace.events if isinstance(event, ModelCall)]
        assert [call.completion.usage.input_tokens for call in calls] == [None, None]
        assert [call.cost_usd for call in calls] == [None, None]
        assert len(notices_of(session)) == 1 and "input_tokens" in notices_of(session)[0].text
        assert session.trace.totals().input_tokens is None
        session.trace.check()
        json.loads("".join(encode(event) for event in calls[:1]), parse_constant=pytest.fail)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_possible_counts_are_kept_without_a_notice(adapter):
    async with AsyncExitStack() as stack:
        session = await with_usage(stack, adapter, 100, 20, cached=64)
        usage = (await session.complete("Hello")).usage
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (100, 20, 64)
        assert session.trace.totals().cost_usd == pytest.approx((36 + 6.4 + 40) / 1e6) and not notices_of(session)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_too_many_cached_tokens_never_make_a_cost_negative(adapter):
    async with AsyncExitStack() as stack:
        session = await with_usage(stack, adapter, 100, 1, cached=10**8)
        assert (await session.complete("Hello")).usage.cached_tokens is None
        assert session.trace.totals().cost_usd == pytest.approx(102 / 1e6) and len(notices_of(session)) == 1


OPENAI_FAULTS = {
    "invalid UTF-8": {"raw": [b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n']},
    "a null delta": {"raw": ['data: {"choices": [{"index": 0, "delta": null, "finish_reason": "stop"}]}\n\n']},
    "no choices": {"raw": ['data: {"choices": []}\n\n'] * 3},
    "choices that are none": {"raw": ['data: {"choices": {"a": 1}}\n\n']},
    "a number for text": {"deltas": [{"content": 5}], "finish": "stop"},
    "a list for text": {"deltas": [{"content": [{"type": "text"}]}], "finish": "stop"},
    "calls that are none": {"deltas": [{"tool_calls": [5]}], "finish": "tool_calls"},
    "a page": {"raw": ["<html><body>Bad Gateway</body></html>\n\n"]},
    "a null": {"raw": ["data: null\n\n"]},
    "deep": {"raw": ["data: " + '{"choices": ' + "[" * 50_000 + "]" * 50_000 + "}\n\n"]},
}
READ_LENIENTLY = {"invalid UTF-8": "\ufffd\ufffd", "a null delta": "", "a list for text": "", "a number for text": "5"}
"""Text of each fault that real servers have shown."""


@pytest.mark.parametrize("adapter", ["openai", "local"])
@pytest.mark.parametrize("fault", OPENAI_FAULTS)
async def test_unreadable_response_is_a_provider_error_and_is_retried(adapter, fault):
    async with AsyncExitStack() as stack:
        session = await connected(stack, adapter, OPENAI_FAULTS[fault], None, None)
        if adapter == "local" and fault == "calls that are none":
            return  # it offers none, and reads none
        if fault in READ_LENIENTLY:
            assert (await session.complete("Hello")).text == READ_LENIENTLY[fault]
            return
        with pytest.raises(Retryable):
            await session.complete("Hello")
        (call,) = session.trace.events
        assert isinstance(call, ModelCall) and call.completion is None
        assert call.attempt == 2, "an unreadable response causes one more call"


@pytest.mark.parametrize("odd", ['{"n": NaN}', '{"n": 1e999}', "[" * 90_000, '{"a": 1, "a": 2}', '"text"'])
async def test_arguments_that_are_not_json_are_a_malformed_call(odd):
    deltas = [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": odd}}]}]
    async with AsyncExitStack() as stack:
        session = await connected(stack, "openai", {"deltas": deltas, "finish": "tool_calls"}, None, None)
        (made,) = (await session.complete("Hello")).message.tool_calls
    assert (made.malformed, made.arguments) == (odd, {})


@pytest.mark.parametrize("odd", [{"n": float("inf")}, {"n": {1, 2}}, ["no", "object"]])
async def test_an_adapter_of_others_passes_no_other_arguments(odd):
    reply = Message(role="agent", tool_calls=(ToolCall(id="a", name="f", arguments=odd),))
    async with AsyncExitStack() as stack:
        (made,) = (await (await connected(stack, "scripted", None, None, reply)).complete("?")).message.tool_calls
    assert made.malformed and made.arguments == {}


@pytest.mark.parametrize(
    "odd", [None, Completion(message=Message(role="agent", text=b"bytes")), Completion(message="text")]
)
async def test_an_adapter_that_returns_no_completion_fails_the_call_and_not_the_run(odd):
    async with AsyncExitStack() as stack:
        session = await connected(stack, "scripted", None, None, "unused")
        session._gateway.model.connect().complete = lambda request, emit: _given(odd)
        with pytest.raises(Retryable):
            await session.complete("?")


async def _given(value: Any) -> Any:
    return value


async def test_unknown_finish_reason_ends_a_completion():
    async with AsyncExitStack() as stack:
        session = await connected(stack, "openai", fake_openai.text("Hi", finish="because"), None, None)
        completion = await session.complete("?")
    assert (completion.text, completion.finish_reason) == ("Hi", "other") and "because" in completion.stopped


@pytest.mark.parametrize("calls", [[{"query": "x" * 1_100_000}], [{"query": "x"}] * 1_001], ids=["long", "many"])
def test_more_calls_or_arguments_than_anybody_runs_are_no_completion(calls):
    made = tuple(ToolCall(id=f"c{number}", name="look", arguments=call) for number, call in enumerate(calls))
    with pytest.raises(ServerFault, match="more than"):
        validate_completion(Completion(message=Message(role="agent", text="", tool_calls=made)), "openai/m")
    completion = Completion(message=Message(role="agent", text="", tool_calls=made[:1]), finish_reason="tool_calls")
    assert len(calls) == 1 or validate_completion(completion, "openai/m")[0].message.tool_calls == made[:1]
