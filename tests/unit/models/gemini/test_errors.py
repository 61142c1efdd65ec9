"""Errors of Gemini: translated, without the key, and never retried by the adapter."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import traceback

import pytest

from agentlab.core.errors import (
    BadRequest,
    ContextOverflow,
    RateLimited,
    Refused,
    Retryable,
    ServerFault,
    Unreachable,
    UnreadableAnswer,
)
from agentlab.models.gemini import GeminiModel
from agentlab.models.keys import KeyRing
from support.fake_gemini import chunk, error, serving, text
from support.gemini import HELLO, KEY, ask, model

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    "response, kind",
    [
        ({"status": 429, "details": [RETRY_INFO]}, RateLimited),
        ({"status": 401, "message": f"{KEY} is\nnot a key"}, Refused),
        ({"status": 403, "message": f"Consumer 'api_key:{KEY}' has been suspended."}, Refused),
        ({"status": 403, "message": "Some other key: AIzaSecretOfSomebodyElse"}, Refused),
        ({"status": 400, "message": "API key not valid. Please pass a valid API key.", "details": [BAD_KEY]}, Refused),
        ({"status": 400, "message": "Unable to submit request"}, BadRequest),
        ({"status": 404, "message": "models/served is not found"}, BadRequest),
        (
            {"status": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."},
            ContextOverflow,
        ),
        ({"status": 500}, ServerFault),
        ({"status": 503, "message": "The model is overloaded."}, ServerFault),
        ({"status": 502, "body": "not an object"}, ServerFault),
        ({"raw": ["data: {nonsense\n\n"]}, UnreadableAnswer),
        ({"raw": ["data: [1, 2]\n\n"]}, Unreachable),
        ({"raw": ['data: {"candidates": 5}\n\n']}, UnreadableAnswer),
        ({"raw": ['data: {"candidates": [{"content": {"parts": [{"text": 5}]}}]}\n\n']}, UnreadableAnswer),
        ({"raw": [f"data: {json.dumps(error(503, 'overloaded', 'UNAVAILABLE'))}\n\n"]}, ServerFault),
        ({"raw": [f"data: {json.dumps(error(429, 'slow down', '', RETRY_INFO))}\n\n"]}, RateLimited),
        ({"raw": ['data: {"error": {"message": "no code"}}\n\n']}, ServerFault),
        ({"raw": ['data: {"error": "no object"}\n\n']}, ServerFault),
        ({"chunks": [chunk({"text": "half an ans"})], "drop": True}, Unreachable),
        ({"chunks": [chunk({"text": "half an ans"})]}, Unreachable),
        ({"chunks": [{"usageMetadata": {"promptTokenCount": 3}}]}, Unreachable),
        ({"chunks": []}, Unreachable),
        ({"chunks": [chunk(finish="OTHER")]}, ServerFault),
    ],
)
async def test_errors_are_translated_and_never_show_the_key(response, kind, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(kind) as caught:
        await ask(response)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    logged = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "Secret" not in logged
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    if kind is RateLimited:
        assert caught.value.retry_after == 7.5


async def test_retry_time_falls_back_to_the_header():
    with pytest.raises(RateLimited) as caught:
        await ask({"status": 429, "headers": {"retry-after": "7"}})
    assert caught.value.retry_after == 7


@pytest.mark.parametrize("response", [{"gone": True}, {"drop": True}, {"status": 503}, {"status": 429}])
async def test_a_call_that_fails_is_not_tried_again_down_here(response):
    async with serving(lambda body: response) as fake:
        adapter = model(fake)
        with pytest.raises(Retryable):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()
    assert len(fake.seen) == 1


async def test_an_endless_response_ends_with_its_request():
    goes_on = chunk({"text": "half"}, finish="CONTINUATION")
    goes_on["candidates"][0]["continuationToken"] = "dG9rZW4="
    completion, _, fake = await ask({"chunks": [goes_on]})
    assert (len(fake.seen), completion.finish_reason) == (1, "length")


async def test_keys_take_turns_and_one_in_trouble_is_set_aside():
    refused = {"status": 403, "message": "no permission"}
    async with serving(
        lambda body: refused if fake.headers[-1]["x-goog-api-key"] == "second-key" else text("ok")
    ) as fake:
        adapter = model(fake, "first-key", "second-key", "third-key")
        await adapter.complete(HELLO, lambda piece: None)
        with pytest.raises(RateLimited) as caught:
            await adapter.complete(HELLO, lambda piece: None)
        assert caught.value.other_keys == 2
        for _ in range(3):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()
    used = [headers["x-goog-api-key"].split("-")[0] for headers in fake.headers]
    assert used == ["first", "second", "third", "first", "third"]


async def test_an_unreachable_server_and_one_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        adapter = GeminiModel("m", base_url=f"http://127.0.0.1:{port}", keys=KeyRing(["k"]), timeout=0.2)
        with pytest.raises(Unreachable, match="in time"):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()
    closed = GeminiModel("m", base_url=f"http://127.0.0.1:{port}", keys=KeyRing(["k"]))
    with pytest.raises(Unreachable, match="cannot reach"):
        await closed.complete(HELLO, lambda piece: None)
    await closed.close()


async def test_the_time_limit_is_for_the_whole_response():
    async with serving(lambda body: {"chunks": [chunk({"text": "Well"})], "hang": True}) as fake:
        adapter = model(fake, timeout=0.3)
        with pytest.raises(Unreachable, match="in time"):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()


async def test_a_cancelled_call_hangs_up():
    async with serving(lambda body: {"chunks": [chunk({"text": "Well"})], "hang": True}) as fake:
        adapter = model(fake)
        event = asyncio.Event()
        asking = asyncio.create_task(adapter.complete(HELLO, lambda piece: event.set()))
        await asyncio.wait_for(event.wait(), 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(fake.left.wait(), 5)
        await adapter.close()


async def test_a_closed_model_can_be_asked_again():
    async with serving(lambda body: text("ok")) as fake:
        adapter = model(fake)
        for _ in range(2):
            await adapter.complete(HELLO, lambda piece: None)
            await adapter.close()
        await adapter.close()
