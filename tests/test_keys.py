"""API keys: where they come from, whose turn it is, and that nobody ever sees one."""

from __future__ import annotations

import json

import pytest
from fake_openai import serving, text

from agentlab.errors import ConfigError, Refused
from agentlab.messages import Message, Request
from agentlab.models.keys import RATE_LIMITED_SECONDS, KeyRing, load_keys
from agentlab.models.openai import connect
from agentlab.project import KEYS

HELLO = Request(messages=(Message(role="user", text="Hello"),))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTLAB_KEYS", raising=False)
    return tmp_path


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
    (here / "keys.json").write_text(KEYS)
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
    assert [ring.take() for _ in range(4)] == ["a", "b", "c", "a"]
    assert ring.set_aside("b", 30)
    assert [ring.take() for _ in range(3)] == ["c", "a", "c"]
    now[0] = 31
    assert {ring.take() for _ in range(3)} == {"a", "b", "c"}
    assert ring.set_aside("a", 5) and ring.set_aside("b", 9)
    assert not ring.set_aside("c", 7)
    assert ring.take() == "a", "where all are set aside, the one that comes back first"


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
    from agentlab.inflight import QueuedModel
    from agentlab.session import Session
    from agentlab.trace import Trace
    from agentlab.wire import Line, Recorder

    write(here, {"openai": ["key-one", "key-two"]})
    async with serving(lambda body: trouble if len(fake.headers) == 1 else text("Hi")) as fake:
        model = connect("m", base_url=fake.base_url)
        trace = Trace("f", "c")
        line = Line(Recorder(), QueuedModel(model.name, "", lambda: model), None, trace)
        session = Session(trace=trace, wire=line, history=None, now=None)
        assert (await session.complete(HELLO.messages)).message.text == "Hi"
        for _ in range(2):
            await session.complete(HELLO.messages)
        await model.close()
    assert [headers["Authorization"][-3:] for headers in fake.headers] == ["one", "two", "two", "two"]
    assert RATE_LIMITED_SECONDS > 0 and "key-one" not in trace.steps()


async def test_the_last_key_that_is_refused_is_refused(here):
    write(here, {"openai": ["key-one"]})
    async with serving(lambda body: {"status": 401, "message": "wrong key key-one"}) as fake:
        model = connect("m", base_url=fake.base_url)
        with pytest.raises(Refused) as refused:
            await model.complete(HELLO, lambda piece: None)
        await model.close()
    assert "key-one" not in str(refused.value)
