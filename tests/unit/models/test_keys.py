"""API keys: their sources, their rotation, and their redaction."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentlab.cli.project import TEMPLATE
from agentlab.core.errors import BadRequest, ConfigError, RateLimited, Refused
from agentlab.core.messages import Completion, Message, Request
from agentlab.core.trace import Trace
from agentlab.models.embedders import openai as embeddings
from agentlab.models.keys import RATE_LIMITED_SECONDS, KeyRing, load_keys, server_and_keys, shared_ring
from agentlab.models.openai import connect
from agentlab.session.session import Session
from support.doubles import gateway_to
from support.fake_openai import serving, text

HELLO = Request(messages=(Message(role="user", text="Hello"),))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTLAB_KEYS", raising=False)
    return tmp_path


def session_with(model, **options):
    trace = Trace("f", "c")
    return Session(trace=trace, gateway=gateway_to(model, trace, **options), now=None)


def write(folder, content):
    (folder / "llm_api_keys.json").write_text(content if isinstance(content, str) else json.dumps(content))


def test_the_environment_wins_over_the_file(here, monkeypatch):
    assert load_keys("openai", "OPENAI_API_KEY") == ()
    write(here, {"openai": ["one", " two "], "gemini": ["three"]})
    assert load_keys("openai", "OPENAI_API_KEY") == ("one", "two")
    assert load_keys("gemini", "GEMINI_API_KEY") == ("three",)
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    assert load_keys("openai", "OPENAI_API_KEY") == ("mine",)


def test_the_file_may_lie_elsewhere_and_the_template_is_one(here, monkeypatch):
    (here / "keys.json").write_bytes((TEMPLATE / "llm_api_keys.json.template").read_bytes())
    monkeypatch.setenv("AGENTLAB_KEYS", str(here / "keys.json"))
    assert len(load_keys("openai", "OPENAI_API_KEY")) == 1
    assert load_keys("gemini", "GEMINI_API_KEY") == ()


@pytest.mark.parametrize(
    "content", ["secret-1", '["secret-1"]', '{"openai": "secret-1"}', '{"openai": [1, "secret-1"]}']
)
def test_a_broken_file_is_one_line_without_its_content(here, content):
    write(here, content)
    with pytest.raises(ConfigError, match=r"llm_api_keys\.json") as broken:
        load_keys("openai", "OPENAI_API_KEY")
    assert "secret" not in str(broken.value)


def test_keys_are_taken_in_turn_and_come_back():
    now = [0.0]
    ring = KeyRing(["a", "b", "c"], clock=lambda: now[0])

    def set_aside(key, seconds):
        return ring.report_failure(key, RateLimited("slow down", "m", seconds))

    assert [ring.next_key() for _ in range(4)] == ["a", "b", "c", "a"]
    assert set_aside("b", 30).other_keys == 2
    assert [ring.next_key() for _ in range(3)] == ["c", "a", "c"]
    now[0] = 31
    assert {ring.next_key() for _ in range(3)} == {"a", "b", "c"}
    assert set_aside("a", 5).other_keys == set_aside("b", 9).other_keys == 2
    last = set_aside("c", 7)
    assert (last.other_keys, last.retry_after) == (0, 5)
    assert ring.next_key() == "a", "where all are set aside, the one that comes back first"


async def test_each_call_takes_the_next_key(here):
    write(here, {"openai": ["key-one", "key-two"]})
    async with serving(lambda body: text("Hi")) as fake:
        model = connect("m", base_url=fake.base_url)
        for _ in range(3):
            await model.complete(HELLO, lambda piece: None)
        await model.close()
    assert [headers["Authorization"] for headers in fake.headers] == [
        "Bearer key-one",
        "Bearer key-two",
        "Bearer key-one",
    ]


@pytest.mark.parametrize("trouble", [{"status": 429}, {"status": 401, "message": "wrong key key-one"}])
async def test_a_key_in_trouble_is_set_aside_and_the_next_one_answers(here, trouble, monkeypatch):
    write(here, {"openai": ["key-one", "key-two"]})
    async with serving(lambda body: trouble if len(fake.headers) == 1 else text("Hi")) as fake:
        model = connect("m", base_url=fake.base_url)
        session = session_with(model)
        assert (await session.complete(HELLO.messages)).message.text == "Hi"
        for _ in range(2):
            await session.complete(HELLO.messages)
        await model.close()
    assert [headers["Authorization"][-3:] for headers in fake.headers] == ["one", "two", "two", "two"]
    assert RATE_LIMITED_SECONDS > 0 and "key-one" not in session.trace.steps()


async def test_the_last_key_that_is_refused_is_refused(here):
    write(here, {"openai": ["key-one"]})
    async with serving(lambda body: {"status": 401, "message": "wrong key key-one"}) as fake:
        model = connect("m", base_url=fake.base_url)
        with pytest.raises(Refused) as refused:
            await model.complete(HELLO, lambda piece: None)
        await model.close()
    assert "key-one" not in str(refused.value)


@pytest.fixture
def pauses(monkeypatch):
    """Record the pauses instead of sleeping; a pause of 0 is not recorded."""
    slept, sleep = [], asyncio.sleep

    async def pause(seconds, *result):
        if seconds:
            slept.append(seconds)
        return await sleep(0, *result)

    monkeypatch.setattr("agentlab.wire.retries.asyncio.sleep", pause)
    return slept


@pytest.mark.parametrize("trouble", [{"status": 401}, {"status": 429, "headers": {"retry-after": "50"}}])
async def test_every_key_is_tried_without_waiting(here, trouble, pauses, monkeypatch):
    """Four refused keys do not use up the three retries of a call."""
    monkeypatch.setattr("agentlab.wire.retries.BACKOFF_SECONDS", 1.0)
    keys = [f"key-{number}" for number in range(5)]
    write(here, {"openai": keys})
    async with serving(lambda body: trouble if len(fake.headers) < 5 else text("Hi")) as fake:
        model = connect("m", base_url=fake.base_url)
        session = session_with(model, retries=3)
        assert (await session.complete(HELLO.messages)).message.text == "Hi"
        assert (await session.complete(HELLO.messages)).message.text == "Hi"
        await model.close()
    assert [headers["Authorization"].split()[-1] for headers in fake.headers] == [*keys, "key-4"]
    assert [event.attempt for event in session.trace.events] == [5, 1]
    assert pauses == []


class Ringing:
    """A provider that refuses each of its keys with the same error; a call takes .1 s on its clock."""

    name, parallel = "ringing", None

    def __init__(self, keys, error):
        self.error, self.received, self.now = error, [], 0.0
        self.ring = KeyRing(keys, clock=lambda: self.now)

    async def complete(self, request, emit):
        key = self.ring.next_key()
        self.received.append(key)
        self.now += 0.1
        raise BadRequest("asked for ever") if len(self.received) > 50 else self.ring.report_failure(key, self.error)


@pytest.mark.parametrize("retry_after", [0.0, 1.0])
async def test_keys_with_no_retry_pause_do_not_alternate_forever(retry_after, pauses):
    model = Ringing(["a", "b"], RateLimited("slow down", "ringing", retry_after))
    with pytest.raises(RateLimited, match="slow down"):
        await session_with(model, retries=3).complete(HELLO.messages)
    assert model.received[:2] == ["a", "b"] and len(model.received) == 2 + 3, "each key once, then retries"
    assert len(pauses) == 3 and all(0.5 < pause <= 1 for pause in pauses), "until the first of them is back"


@pytest.mark.parametrize("order", [0, 1])
async def test_limited_key_is_awaited_if_the_other_is_refused(order, pauses):
    """One is rate-limited for two seconds, the other is refused."""
    errors = [RateLimited("slow down", "m", retry_after=2.0), Refused("no quota", "m")]
    now, requests = [0.0], []
    ring = KeyRing(["a", "b"], clock=lambda: now[0])

    class Provider:
        name, parallel = "m", None

        async def complete(self, request, emit):
            key = ring.next_key()
            requests.append(key)
            if pauses:
                now[0] = pauses[-1]
                return Completion(message=Message(role="agent", text="Hi"))
            raise ring.report_failure(key, errors[(len(requests) - 1 + order) % 2])

    reply = await session_with(Provider(), retries=3).complete(HELLO.messages)
    assert reply.message.text == "Hi" and pauses == [2.0]


async def test_a_provider_has_one_ring_for_all_its_models_and_embedders(here):
    write(here, {"openai": ["key-one", "key-two"]})
    async with serving(lambda body: text("Hi")) as fake:
        for name in ("m", "n"):
            model = connect(name, base_url=fake.base_url)
            await model.complete(HELLO, lambda piece: None)
            await model.close()
        embedder = embeddings.connect("e", base_url=fake.base_url)
        with pytest.raises(BadRequest):  # this server has no vectors
            await embedder.embed(["offside"])
        await embedder.close()
    assert [headers["Authorization"] for headers in fake.headers] == ["Bearer key-one", "Bearer key-two"]
    assert shared_ring("openai", ("key-one", "key-two")).next_key() == "key-two", (
        "the embedder took the first one again"
    )


async def test_the_last_of_the_keys_that_are_refused_ends_the_call_at_once():
    model = Ringing(["a", "b", "c"], Refused("no quota", "ringing"))
    with pytest.raises(Refused, match="no quota"):
        await session_with(model, retries=3).complete(HELLO.messages)
    assert model.received == ["a", "b", "c"]


async def test_slow_keys_do_not_take_turns_for_ever(monkeypatch):
    class Slow:
        name, parallel = "slow", None
        received, now = 0, 0.0

        def __init__(self):
            self.ring = KeyRing(["a", "b"], clock=lambda: self.now)

        async def complete(self, request, emit):
            key = self.ring.next_key()
            self.received += 1
            self.now += 1.5
            if self.received > 50:
                raise BadRequest("asked for ever")
            raise self.ring.report_failure(key, RateLimited("slow down", self.name, 0.0))

    with pytest.raises(RateLimited):
        await session_with(Slow(), retries=3).complete(HELLO.messages)


@pytest.mark.parametrize("given", ["sk-abc\r\n", " sk-abc", "Bearer sk-abc", "\ufeffsk-abc\u200b"])
def test_text_around_a_key_is_left_out(monkeypatch, given):
    monkeypatch.setenv("OPENAI_API_KEY", given)
    assert server_and_keys("openai", "OPENAI_API_KEY", " http://127.0.0.1:1/v1/ ", None)[1].keys == ("sk-abc",)


@pytest.mark.parametrize(("given", "why"), [('"sk-abc"', "quotes"), ("sk-abc…", "HTTP header cannot carry")])
def test_what_is_no_key_is_named_without_it(monkeypatch, given, why):
    monkeypatch.setenv("OPENAI_API_KEY", given)
    with pytest.raises(ConfigError, match=why) as caught:
        server_and_keys("openai", "OPENAI_API_KEY", None, None)
    assert "abc" not in str(caught.value)
