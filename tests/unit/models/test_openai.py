"""The OpenAI adapter on the wire, against a local server: requests, responses and errors."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import (
    BadRequest,
    ConfigError,
    ContextOverflow,
    RateLimited,
    Refused,
    ServerFault,
    Unreachable,
    UnreadableAnswer,
)
from agentlab.core.messages import Message, Request, ToolCall, ToolSpec, Usage
from agentlab.models.openai import connect
from agentlab.models.provider import wire_names
from support.fake_openai import USAGE, serving, text

SEARCH = ToolSpec(name="docs.search", description="Search.", parameters={"type": "object", "properties": {}})
HELLO = Request(messages=(Message(role="user", text="Hello"),))


def model(fake, **options):
    return connect("served", base_url=fake.base_url, api_key="sk-secret-key-1", **options)


async def ask(response, request=HELLO):
    async with serving(lambda body: response) as fake:
        adapter = model(fake)
        pieces: list[str] = []
        try:
            return await adapter.complete(request, pieces.append), pieces, fake
        finally:
            await adapter.close()


async def test_text_streams_and_usage_is_read():
    completion, pieces, fake = await ask(text("Hel", "lo", usage=USAGE, pause=0.05))
    assert (completion.message.text, pieces) == ("Hello", ["Hel", "lo"])
    assert completion.usage == Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=8)
    assert (completion.model, completion.finish_reason) == ("served-model", "stop")
    assert fake.headers[0]["Authorization"] == "Bearer sk-secret-key-1"


async def test_a_last_chunk_may_have_null_for_no_choices():
    completion, _, _ = await ask({**text("Hi", usage=USAGE), "no_choices": None})
    assert (completion.message.text, completion.usage.input_tokens) == ("Hi", 100)


async def test_a_server_without_usage_gives_unknown_not_zero():
    completion, _, _ = await ask(text("Hi"))
    assert completion.usage == Usage()


async def test_everything_of_a_request_reaches_the_server():
    request = Request(
        messages=(
            Message(role="system", text="S"),
            Message(role="user", text="U"),
            Message(role="agent", tool_calls=(ToolCall(id="c1", name="docs.search", arguments={"q": "x"}),)),
            Message(role="tool", text="R", tool_call_id="c1", name="docs.search"),
        ),
        tools=(SEARCH,),
        tool_choice="docs.search",
        output_schema={"type": "object"},
        temperature=0.5,
        seed=3,
        max_tokens=9,
    )
    _, _, fake = await ask(text("ok"), request)
    body = fake.seen[0]
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "docs_search", "arguments": '{"q": "x"}'}
    assert body["messages"][3]["tool_call_id"] == "c1"
    assert body["tools"][0]["function"]["name"] == "docs_search"
    assert body["tool_choice"] == {"type": "function", "function": {"name": "docs_search"}}
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.5, 3, 9)
    assert body["stream_options"] == {"include_usage": True}


async def test_parallel_calls_are_joined_and_names_mapped_back():
    deltas = [
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "docs_search"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": "o'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "docs_search", "arguments": "{broken"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ffside"}'}}]},
    ]
    request = Request(messages=HELLO.messages, tools=(SEARCH,))
    completion, _, _ = await ask({"deltas": deltas, "finish": "tool_calls"}, request)
    first, second = completion.message.tool_calls
    assert (first.id, first.name, first.arguments) == ("a", "docs.search", {"q": "offside"})
    assert (second.id, second.malformed) == ("b", "{broken")
    assert completion.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "response, error",
    [
        ({"status": 429, "headers": {"retry-after": "7"}}, RateLimited),
        ({"status": 429, "code": "insufficient_quota"}, Refused),
        ({"status": 401, "message": "Incorrect API key provided: sk-secret-key-1"}, Refused),
        ({"status": 403}, Refused),
        ({"status": 500}, ServerFault),
        ({"status": 503}, ServerFault),
        ({"status": 404, "message": "no such model"}, BadRequest),
        ({"status": 400, "code": "context_length_exceeded"}, ContextOverflow),
        ({"status": 400, "message": "the request exceeds the available context size"}, ContextOverflow),
        ({"status": 400, "message": "temperature is not supported"}, BadRequest),
        ({"deltas": [{"content": "half an ans"}], "drop": True}, Unreachable),
        ({"raw": ["data: {nonsense\n\n"]}, UnreadableAnswer),
        ({"raw": ['data: {"error": {"message": "out of memory"}}\n\n']}, ServerFault),
    ],
)
async def test_errors_are_translated_and_never_show_the_key(response, error):
    with pytest.raises(error) as caught:
        await ask(response)
    assert type(caught.value) is error
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or error is UnreadableAnswer, "a server's words may quote the key"
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    if error is RateLimited:
        assert caught.value.retry_after == 7


async def test_an_unreachable_server_and_one_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        adapter = connect("m", base_url=f"http://127.0.0.1:{port}", api_key="k", timeout=0.2)
        with pytest.raises(Unreachable, match="in time"):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()
    closed = connect("m", base_url=f"http://127.0.0.1:{port}", api_key="k")
    with pytest.raises(Unreachable, match="cannot reach"):
        await closed.complete(HELLO, lambda piece: None)
    await closed.close()


def test_connect_needs_a_key_or_a_server(monkeypatch):
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        connect("gpt")
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with pytest.raises(ConfigError, match="http"):
        connect("gpt")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1")
    assert connect("gpt").name == "openai/gpt"


async def test_openai_itself_is_asked_for_max_completion_tokens():
    adapter = connect("gpt", api_key="k")
    request = Request(messages=HELLO.messages, max_tokens=5)
    assert adapter.translate(request)["max_completion_tokens"] == 5


@given(st.lists(st.text(max_size=80), unique=True, max_size=12))
def test_wire_names_are_legal_and_distinct(names):
    wired = wire_names(names)
    assert set(wired) == set(names)
    assert len(set(wired.values())) == len(names)
    for name in wired.values():
        assert 0 < len(name) <= 64
        assert all(c.isascii() and (c.isalnum() or c in "_-") for c in name)


async def test_a_legal_name_is_sent_as_it_is():
    assert wire_names(["lookup_documents"]) == {"lookup_documents": "lookup_documents"}
    assert json.dumps(wire_names(["a.b", "a_b"])) == '{"a.b": "a_b", "a_b": "a_b_2"}'
