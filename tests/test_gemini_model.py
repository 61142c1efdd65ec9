"""The Gemini adapter on the wire, against a strict server of our own: what is sent, what is read, how errors are told.

The real one is asked by `evals/live_gemini.py`, which `make test` runs where a key is in the environment.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import socket
import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from fake_gemini import USAGE, FakeGemini, Refusal, check, chunk, error, said, serving, text
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.core.errors import (
    BadRequest,
    ConfigError,
    ContextOverflow,
    RateLimited,
    Refused,
    Retryable,
    ServerFault,
    Unreachable,
)
from agentlab.core.messages import Completion, Message, Request, ToolCall, ToolSpec, Usage, to_json
from agentlab.models.gemini import GeminiModel, connect, identity
from agentlab.models.keys import KeyRing
from agentlab.models.tool_names import wire_names

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

KEY = "TheSecretKeyNumberOne"
SEARCH = ToolSpec(name="docs.search", description="Search.", parameters={"type": "object", "properties": {}})
CLOCK = ToolSpec(name="2nd clock", description="Tell the time.", parameters={"type": "object", "properties": {}})
USER = Message(role="user", text="Hello")
HELLO = Request(messages=(USER,))


# A client of the SDK reads all certificates three times over, and a test takes a tenth of that.
_certificates = functools.cache(ssl.create_default_context)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(ssl, "create_default_context", _certificates)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTLAB_KEYS", str(tmp_path / "none.json"))


def model(fake: FakeGemini, *keys: str, **options: Any) -> GeminiModel:
    return GeminiModel("served", base_url=fake.base_url, keys=KeyRing(keys or [KEY]), **options)


async def ask(answer, *messages: Message, **facts: Any) -> tuple[Completion, list[str], FakeGemini]:
    async with serving(lambda body: answer) as fake:
        adapter = model(fake)
        pieces: list[str] = []
        try:
            return await adapter.complete(Request(messages=messages or (USER,), **facts), pieces.append), pieces, fake
        finally:
            await adapter.close()


async def sent(*messages: Message, **facts: Any) -> dict[str, Any]:
    """The body that reaches the server, which has checked it."""
    _, _, fake = await ask(text("ok"), *messages, **facts)
    return fake.seen[0]


def system(words: str) -> Message:
    return Message(role="system", text=words)


def agent(words: str = "", *calls: ToolCall, **more: Any) -> Message:
    return Message(role="agent", text=words, tool_calls=calls, **more)


def result(call_id: str, words: str, name: str | None = "docs.search") -> Message:
    return Message(role="tool", text=words, tool_call_id=call_id, name=name)


def search(call_id: str, **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name="docs.search", **more)


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
async def test_a_count_that_was_not_told_is_unknown_not_zero(usage, read):
    completion, _, _ = await ask(said({"text": "Hi"}, **({"usage": usage} if usage else {})))
    assert completion.usage == read


async def test_the_last_count_of_a_stream_stands():
    first = chunk({"text": "Hi"}, usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 1})
    last = chunk(finish="STOP", usageMetadata={"promptTokenCount": 7, "candidatesTokenCount": 4})
    completion, _, _ = await ask({"chunks": [first, last]})
    assert completion.usage.output_tokens == 4


async def test_thoughts_are_neither_shown_nor_kept():
    completion, pieces, _ = await ask(said({"text": "Hm.", "thought": True}, {"text": "Yes."}))
    assert (completion.message, pieces) == (agent("Yes."), ["Yes."])


async def test_everything_of_a_request_reaches_the_server():
    body = await sent(
        system("S"),
        Message(role="user", text="U"),
        agent("Let me look.", search("c1", arguments={"q": "x"}), ToolCall(id="c2", name="2nd clock")),
        result("c1", "R"),
        result("c2", "Error: no clock", None),
        tools=(SEARCH, CLOCK),
        tool_choice="docs.search",
        output_schema={"type": "object", "$defs": {}},
        temperature=0.0,
        seed=3,
        max_tokens=9,
    )
    assert body["systemInstruction"]["parts"] == [{"text": "S"}]
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "U"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "docs_search", "args": {"q": "x"}}},
                {"functionCall": {"name": "_2nd_clock", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "docs_search", "response": {"result": "R"}}},
                {"functionResponse": {"name": "_2nd_clock", "response": {"error": "Error: no clock"}}},
            ],
        },
    ]
    assert [tool["name"] for tool in body["tools"][0]["functionDeclarations"]] == ["docs_search", "_2nd_clock"]
    assert body["tools"][0]["functionDeclarations"][0]["parameters_json_schema"] == SEARCH.parameters
    calling = {"mode": "ANY", "allowedFunctionNames": ["docs_search"]}
    assert body["toolConfig"] == {"functionCallingConfig": calling}
    assert body["generationConfig"] == {
        "temperature": 0.0,
        "seed": 3,
        "maxOutputTokens": 9,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "$defs": {}},
    }


async def test_what_a_request_leaves_open_is_left_to_the_server():
    assert set(await sent(USER)) <= {"contents", "generationConfig"}
    assert not (await sent(USER)).get("generationConfig")


@pytest.mark.parametrize("choice, mode", [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
async def test_tools_are_declared_whatever_the_choice(choice, mode):
    body = await sent(USER, tools=(SEARCH,), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert body["tools"][0]["functionDeclarations"][0]["name"] == "docs_search"


async def test_system_messages_after_the_head_keep_their_place():
    body = await sent(system("A"), system("B"), USER, agent("Hi"), system("C"), Message(role="user", text="D"))
    assert body["systemInstruction"]["parts"] == [{"text": "A"}, {"text": "B"}]
    assert body["contents"][2] == {"role": "user", "parts": [{"text": "C"}, {"text": "D"}]}


@pytest.mark.parametrize(
    "messages", [(system("S"),), (agent("Welcome."), USER), (agent("", search("c")), result("c", ""))]
)
async def test_a_conversation_that_the_user_did_not_open_is_opened(messages):
    body = await sent(*messages)
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "Begin."}]}


async def test_messages_of_one_side_become_one_turn_and_empty_ones_none():
    body = await sent(USER, agent(""), Message(role="user", text="Still there?"), agent("Yes."), agent("I am."), USER)
    turns = [(content["role"], [part["text"] for part in content["parts"]]) for content in body["contents"]]
    assert turns == [("user", ["Hello", "Still there?"]), ("model", ["Yes.", "I am."]), ("user", ["Hello"])]


async def test_results_stand_in_the_order_of_their_calls_before_the_users_words():
    late = (USER, result("b", "B"), result("a", "A"))
    body = await sent(USER, agent("", search("a"), search("b")), *late)
    *results, words = body["contents"][2]["parts"]
    assert [part["functionResponse"]["response"]["result"] for part in results] == ["A", "B"]
    assert words == {"text": "Hello"}


async def test_a_call_id_used_twice_means_the_call_just_made():
    clock = ToolCall(id="call_0", name="2nd clock")
    body = await sent(USER, agent("", search("call_0")), result("call_0", "A"), agent("", clock), result("call_0", "B"))
    assert body["contents"][4]["parts"][0]["functionResponse"]["name"] == "_2nd_clock"


async def test_a_malformed_call_is_sent_as_what_it_was():
    broken = ToolCall(id="c", name="docs.search", malformed="{broken")
    body = await sent(USER, agent("", broken), result("c", "Error: not JSON"))
    made = {"name": "docs_search", "args": {"malformed": "{broken"}}
    assert body["contents"][1]["parts"] == [{"functionCall": made}]


async def test_calls_are_read_with_their_names_ids_and_signatures():
    answer = said(
        {"functionCall": {"name": "docs_search", "args": {"q": "a"}, "id": "given"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "_2nd_clock"}},
        {"functionCall": {"name": "unknown", "args": {"n": [1, 2.5, None]}}},
    )
    before = (USER, agent("", search("call_2"), search("x")), result("call_2", "R"), result("x", "R"))
    completion, pieces, _ = await ask(answer, *before, tools=(SEARCH, CLOCK))
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
    completion, _, _ = await ask(said(twice, twice), *before)
    assert [call.id for call in completion.message.tool_calls] == ["call_3", "call_4"]
    again, _, _ = await ask(said(twice, twice), *before)
    assert again == completion


async def test_ids_go_back_only_where_the_api_gave_them():
    answer = said({"functionCall": {"name": "docs_search", "id": "given"}}, {"functionCall": {"name": "docs_search"}})
    completion, _, _ = await ask(answer, tools=(SEARCH,))
    first, second = completion.message.tool_calls
    body = await sent(USER, completion.message, result(first.id, "A"), result(second.id, "B"))
    parts = [part["functionResponse"] for part in body["contents"][2]["parts"]]
    assert [part.get("id") for part in parts] == ["given", None]
    assert [part["functionCall"].get("id") for part in body["contents"][1]["parts"]] == ["given", None]


async def test_a_message_that_was_changed_loses_the_signatures_of_its_text_only():
    answer = said({"text": "Hi"}, {"text": "", "thoughtSignature": "dA=="}, {"functionCall": {"name": "docs_search"}})
    completion, _, _ = await ask(answer, tools=(SEARCH,))
    kept = completion.message
    assert kept.extra == {"gemini": {"parts": [{"text": "Hi"}, {"text": "", "thought_signature": "dA=="}, "call"]}}
    changed = agent("Hello", *kept.tool_calls, extra=kept.extra)
    body = await sent(USER, changed, result("call_1", "R"))
    assert body["contents"][1]["parts"] == [{"text": "Hello"}, {"functionCall": {"name": "docs_search", "args": {}}}]
    assert len((await sent(USER, agent("", extra=kept.extra), USER))["contents"]) == 1


@pytest.mark.parametrize(
    "reason, finish",
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("OTHER", "stop")]
    + [(reason, "content_filter") for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")],
)
async def test_finish_reasons(reason, finish):
    completion, _, _ = await ask(said({"text": "Well"}, finish=reason))
    assert (completion.finish_reason, completion.message.text) == (finish, "Well")


async def test_an_answer_or_a_prompt_that_was_blocked_is_an_empty_one():
    completion, pieces, _ = await ask(said(finish="SAFETY"))
    assert (completion.finish_reason, completion.message, pieces) == ("content_filter", agent(), [])
    feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 7}}
    completion, _, _ = await ask({"chunks": [feedback]})
    assert (completion.finish_reason, completion.message) == ("content_filter", agent())
    assert completion.usage == Usage(input_tokens=7)


async def test_a_function_call_that_failed_is_a_malformed_call_and_can_be_answered():
    completion, _, _ = await ask(said(finish="MALFORMED_FUNCTION_CALL"), tools=(SEARCH,))
    (lost,) = completion.message.tool_calls
    assert (lost.id, lost.name, lost.malformed) == ("call_1", "", "MALFORMED_FUNCTION_CALL")
    assert completion.finish_reason == "tool_calls"
    body = await sent(USER, completion.message, result(lost.id, "Error: there is no tool ''", ""), tools=(SEARCH,))
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == "_"


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    "answer, kind",
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
        ({"raw": ["data: {nonsense\n\n"]}, ServerFault),
        ({"raw": ["data: [1, 2]\n\n"]}, Unreachable),
        ({"raw": ['data: {"candidates": 5}\n\n']}, ServerFault),
        ({"raw": ['data: {"candidates": [{"content": {"parts": [{"text": 5}]}}]}\n\n']}, ServerFault),
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
async def test_errors_are_translated_and_never_show_the_key(answer, kind, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(kind) as caught:
        await ask(answer)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    logged = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "Secret" not in logged
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    if kind is RateLimited:
        assert caught.value.retry_after == 7.5


async def test_the_header_says_when_to_come_back_where_the_body_does_not():
    with pytest.raises(RateLimited) as caught:
        await ask({"status": 429, "headers": {"retry-after": "7"}})
    assert caught.value.retry_after == 7


@pytest.mark.parametrize("answer", [{"gone": True}, {"drop": True}, {"status": 503}, {"status": 429}])
async def test_a_call_that_fails_is_not_tried_again_down_here(answer):
    async with serving(lambda body: answer) as fake:
        adapter = model(fake)
        with pytest.raises(Retryable):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()
    assert len(fake.seen) == 1


async def test_an_answer_that_could_go_on_ends_where_its_request_does():
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


async def test_the_time_limit_is_for_the_whole_answer():
    async with serving(lambda body: {"chunks": [chunk({"text": "Well"})], "hang": True}) as fake:
        adapter = model(fake, timeout=0.3)
        with pytest.raises(Unreachable, match="in time"):
            await adapter.complete(HELLO, lambda piece: None)
        await adapter.close()


async def test_a_cancelled_call_hangs_up():
    async with serving(lambda body: {"chunks": [chunk({"text": "Well"})], "hang": True}) as fake:
        adapter = model(fake)
        heard = asyncio.Event()
        asking = asyncio.create_task(adapter.complete(HELLO, lambda piece: heard.set()))
        await asyncio.wait_for(heard.wait(), 5)
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


def test_connect_needs_a_key_or_a_server(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        connect("flash")
    monkeypatch.setenv("GEMINI_BASE_URL", "localhost:8000")
    with pytest.raises(ConfigError, match="http"):
        connect("flash")
    monkeypatch.setenv("GEMINI_BASE_URL", "http://localhost:8000")
    assert connect("flash").name == "gemini/flash"
    assert identity("flash") == ("gemini/flash", "compatible")
    monkeypatch.delenv("GEMINI_BASE_URL")
    assert identity("flash") == ("gemini/flash", "gemini")
    keys = tmp_path / "keys.json"
    keys.write_text('{"gemini": ["from the file"]}')
    monkeypatch.setenv("AGENTLAB_KEYS", str(keys))
    assert connect("flash")._keys.keys == ("from the file",)
    monkeypatch.setenv("GOOGLE_API_KEY", "google")
    assert connect("flash")._keys.keys == ("google",)
    monkeypatch.setenv("GEMINI_API_KEY", "gemini")
    assert connect("flash")._keys.keys == ("gemini",)
    assert connect("flash", api_key="given")._keys.keys == ("given",)
    for name in ("", "../flash", "flash?x=1", "flash#", "a//b", "flash:streamGenerateContent"):
        with pytest.raises(ConfigError, match="name of a model"):
            connect(name)


async def test_nothing_but_our_own_settings_says_where_a_call_goes(monkeypatch):
    for name, value in (
        ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9"),
        ("GOOGLE_GENAI_API_VERSION", "v7"),
        ("GOOGLE_GENAI_USE_VERTEXAI", "true"),
    ):
        monkeypatch.setenv(name, value)
    await sent(USER)
    options = GeminiModel("m", base_url=None, keys=KeyRing(["k"]))._connected()._api_client._http_options
    assert options.base_url == "https://generativelanguage.googleapis.com"


def test_a_missing_sdk_is_one_line_with_the_mend(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentlab-harness\[gemini\]'"):
        connect("flash", api_key="k")


def test_the_sdk_is_loaded_for_a_call_only():
    code = "import sys, agentlab, agentlab.cli.parser, agentlab.models.gemini; sys.exit('google.genai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What holds for every conversation. Hypothesis runs in a thread, so that its examples can be asked of the server here.

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
    """What one side says, or calls with a result each, in any order."""
    role = draw(st.sampled_from(["user", "system", "agent", "calls"]))
    if role != "calls":
        return [Message(role=role, text=draw(words))]
    calls = []
    for number in range(draw(st.integers(1, 3))):
        kept = draw(st.fixed_dictionaries({}, optional={"signature": signatures, "id": st.just(True)}))
        made = ToolCall(id=f"call_{number}", name=draw(tool_names), extra={"gemini": kept} if kept else {})
        broken = draw(st.booleans())
        more = {"malformed": draw(words)} if broken else {"arguments": draw(arguments)}
        calls.append(ToolCall(**{**vars(made), **more}))
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


async def on_the_wire(answer: Callable[[dict[str, Any]], Any], run: Callable[[FakeGemini, Any], None]) -> None:
    """Run a property in a thread, with the server and a function that asks it."""
    async with serving(answer) as fake:
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


async def test_every_conversation_is_accepted_and_arrives_whole():
    def run(fake: FakeGemini, complete: Callable[[Request], Completion]) -> None:
        @given(conversations)
        @settings(deadline=None)
        def holds(messages: tuple[Message, ...]) -> None:
            complete(Request(messages=messages))
            body = fake.seen[-1]
            heard = [part for content in body["contents"] for part in content["parts"]]
            texts = [part["text"] for part in heard if "text" in part]
            spoken = [m.text for m in messages if m.role != "tool" and m.text]
            instructed = [part["text"] for part in body.get("systemInstruction", {}).get("parts", [])]
            opened = ["Begin."] if body["contents"][0]["parts"] == [{"text": "Begin."}] else []
            assert [*opened, *spoken[len(instructed) :]] == texts and spoken[: len(instructed)] == instructed

            made = [call for m in messages for call in m.tool_calls]
            names = wire_names(call.name for call in made)
            called = [part for part in heard if "functionCall" in part]
            for call, part in zip(made, called, strict=True):
                wanted = call.arguments if call.malformed is None else {"malformed": call.malformed}
                assert part["functionCall"]["name"] == names[call.name]
                assert json.dumps(part["functionCall"]["args"]) == json.dumps(wanted)
                kept = call.extra.get("gemini", {})
                assert part["functionCall"].get("id") == (call.id if "id" in kept else None)
                assert plainly([part]) == plainly(
                    [part | ({"thoughtSignature": kept["signature"]} if "signature" in kept else {})]
                )
                assert ("thoughtSignature" in part) == ("signature" in kept)

            results = [text for at in range(len(messages)) for text in round_of(messages, at)]
            answered = [part["functionResponse"]["response"] for part in heard if "functionResponse" in part]
            assert answered == [{"error" if r.startswith("Error:") else "result": r} for r in results]

        holds()

    await on_the_wire(lambda body: text("ok"), run)


async def test_what_the_model_said_goes_back_as_it_came():
    parts: list[dict[str, Any]] = []

    def run(fake: FakeGemini, complete: Callable[[Request], Completion]) -> None:
        @given(turns_of_the_model())
        @settings(deadline=None)
        def holds(made: list[dict[str, Any]]) -> None:
            parts[:] = made
            message = complete(Request(messages=(USER,), tools=(SEARCH, CLOCK))).message
            assert Message.from_json(json.loads(json.dumps(to_json(message)))) == message
            assert message.text == "".join(part.get("text", "") for part in made)
            results = (result(call.id, "R", call.name) for call in message.tool_calls)
            complete(Request(messages=(USER, message, *results, USER), tools=(SEARCH, CLOCK)))
            contents = fake.seen[-1]["contents"]
            assert plainly(contents[1]["parts"] if len(contents) > 1 else []) == plainly(made)

        holds()

    await on_the_wire(lambda body: said(*parts), run)


@pytest.mark.parametrize(
    "contents",
    [
        [],
        [{"role": "assistant", "parts": [{"text": "Hi"}]}],
        [{"role": "user", "parts": []}],
        [{"role": "user", "parts": [{"text": ""}]}],
        [{"role": "user", "parts": [{"text": "a"}]}, {"role": "user", "parts": [{"text": "b"}]}],
        [{"role": "model", "parts": [{"functionCall": {"name": "f"}}]}],
        [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}],
        [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        ],
        [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {}}}]},
        ],
    ],
)
def test_the_server_here_is_as_strict_as_the_real_one(contents):
    with pytest.raises(Refusal):
        check({"contents": contents})


def test_the_server_here_refuses_what_it_does_not_know():
    with pytest.raises(Refusal, match="Unknown name"):
        check({"contents": [{"role": "user", "parts": [{"text": "a"}]}], "chatSession": 1})


async def test_the_server_here_answers_in_one_piece_as_well():
    async with (
        serving(lambda body: {"chunks": [chunk({"text": "ok"}, finish="STOP")]}) as fake,
        ClientSession() as client,
    ):
        asked = {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}
        async with client.post(f"{fake.base_url}/v1beta/models/served:generateContent", json=asked) as reply:
            assert (await reply.json())["candidates"][0]["content"]["parts"] == [{"text": "ok"}]
