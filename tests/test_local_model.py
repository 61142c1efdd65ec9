"""The embedded model: prompts, constrained replies and schemas without a model; then the real 0.5B in its child."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import BadRequest, ConfigError, ContextOverflow, Unreachable, WeightsError
from agentlab.core.messages import Completion, Message, Request, ToolCall, ToolSpec
from agentlab.models import weights
from agentlab.models.local import model as local
from agentlab.models.local import server as llama_server
from agentlab.models.local import tool_protocol as protocol
from agentlab.models.local.tool_protocol import JsonStringDecoder, ToolReader
from agentlab.models.schemas import simplify_schema

DATASETS = Path(__file__).parents[2] / "shared" / "datasets"
MODEL = "qwen2.5-coder-0.5b"

LOOKUP = ToolSpec(
    name="lookup_documents",
    description="Search the document collection and return the passages that fit the query.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what to search for"}},
        "required": ["query"],
    },
)
WEATHER = ToolSpec(
    name="weather.now",
    description="The current weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
    },
)


def user(text: str, name: str | None = None) -> Message:
    return Message(role="user", text=text, name=name)


def called(*calls: ToolCall, text: str = "") -> Message:
    return Message(role="agent", text=text, tool_calls=calls)


def result(call_id: str, text: str) -> Message:
    return Message(role="tool", text=text, tool_call_id=call_id, name="lookup_documents")


def rendered(*messages: Message, **options: Any) -> list[dict[str, str]]:
    request = Request(messages=messages, **options)
    return local.LocalModel("any", Path).translate(request).body["messages"]


def read(raw: str, pieces: int = 3, **options: Any) -> tuple[str, str, tuple[ToolCall, ...]]:
    """What was visible while `raw` streamed in pieces of some characters, then the text and the calls."""
    request = Request(**{"messages": (user("?"),), "tools": (LOOKUP, WEATHER), **options})
    reader = ToolReader(request, protocol.offered_tools(request))
    visible = "".join(reader.feed(raw[i : i + pieces]) for i in range(0, len(raw), pieces))
    return visible, *reader.finish()


class TestPrompt:
    def test_without_tools_messages_go_through(self) -> None:
        messages = (Message(role="system", text="Be brief."), user("Hi"), Message(role="agent", text="Hello"))
        assert rendered(*messages, user("Bye", name="Anna")) == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Anna: Bye"},
        ]

    def test_tools_are_told_in_the_system_prompt(self) -> None:
        system, _ = rendered(Message(role="system", text="Be brief."), user("Hi"), tools=(LOOKUP, WEATHER))
        assert system["content"].startswith("Be brief.\n\n")
        assert "- lookup_documents(query: string (what to search for)): Search" in system["content"]
        assert '- weather.now(city: string, unit?: "C"|"F"): The' in system["content"]
        assert rendered(user("Hi"), tools=(LOOKUP,))[0]["role"] == "system"

    def test_results_are_told_by_the_user_and_calls_are_not_shown(self) -> None:
        call = ToolCall(id="call_1", name="lookup_documents", arguments={"query": "né"})
        broken = ToolCall(id="call_2", name="weather.now", malformed='{"city')
        history = (user("When?"), called(call, broken), result("call_1", "In 1816."), result("call_2", "No."))
        _, told = rendered(*history, tools=(LOOKUP, WEATHER))
        assert told["role"] == "user"
        assert told["content"] == (
            'When?\n\nlookup_documents(query="né") returned:\nIn 1816.\n\nweather.now({"city) returned:\nNo.\n\n'
            + protocol.USE_RESULTS
        )
        assert "logit_bias" not in protocol.constraint(Request(messages=history, tools=(LOOKUP,)), (LOOKUP,), MODEL)
        assert [m["role"] for m in rendered(*history, Message(role="agent", text="1816"), user("Thanks"))] == [
            "user",
            "assistant",
            "user",
        ]

    def test_only_an_open_question_to_a_measured_model_is_biased(self) -> None:
        request = Request(messages=(user("When?"),), tools=(LOOKUP,))
        assert protocol.constraint(request, (LOOKUP,), MODEL)["logit_bias"] == [["answer", -4.0]]
        assert "logit_bias" not in protocol.constraint(request, (LOOKUP,), "mine")

    def test_words_beside_a_call_stay(self) -> None:
        call = ToolCall(id="c", name="lookup_documents", arguments={})
        roles = [m["role"] for m in rendered(user("When?"), called(call, text="Let me see."), result("c", "Now."))]
        assert roles == ["user", "assistant", "user"]

    def test_tool_choice(self) -> None:
        def offered(choice: str) -> list[str]:
            return [
                tool.name
                for tool in protocol.offered_tools(Request(messages=(), tools=(LOOKUP, WEATHER), tool_choice=choice))
            ]

        assert offered("auto") == offered("required") == ["lookup_documents", "weather.now"]
        assert offered("none") == []
        assert offered("weather.now") == ["weather.now"]
        with pytest.raises(BadRequest, match="tool_choice is 'other'"):
            offered("other")

    @pytest.mark.parametrize(
        ("choice", "allowed"), [("auto", ["answer", "a"]), ("required", ["a"]), ("a", ["a"]), ("none", None)]
    )
    def test_the_schema_allows_what_the_choice_allows(self, choice: str, allowed: list[str] | None) -> None:
        tool = ToolSpec(name="a", description="", parameters={})
        request = Request(messages=(user("?"),), tools=(tool,), tool_choice=choice)
        grammar = protocol.constraint(request, protocol.offered_tools(request), MODEL).get("grammar")
        if allowed is None:
            assert grammar is None
        else:
            schema = json.loads(grammar.partition("%json ")[2])
            assert [option["properties"]["tool"]["const"] for option in schema["anyOf"]] == allowed

    def test_a_tool_called_answer_keeps_its_name(self) -> None:
        tool = ToolSpec(name="answer", description="", parameters={})
        request = Request(messages=(user("?"),), tools=(tool,))
        assert read('{"tool": "answer", "arguments": {}}', tools=(tool,))[2][0].name == "answer"
        assert read('{"tool": "reply", "text": "Hi"}', tools=(tool,))[:2] == ("Hi", "Hi")
        assert '"reply"' in protocol.constraint(request, (tool,), MODEL)["grammar"]


class TestReply:
    @pytest.mark.parametrize("pieces", [1, 2, 5, 1000])
    def test_an_answer_streams(self, pieces: int) -> None:
        visible, text, calls = read('{"tool": "answer", "text": "A \\"b\\"\\n\\u00e9 \\ud83d\\ude00"}', pieces)
        assert visible == text == 'A "b"\né 😀'
        assert calls == ()

    def test_several_calls_count_on_from_the_history(self) -> None:
        raw = (
            '{"tool": "weather.now", "arguments": {"city": "{\\"tool\\": \\"x\\", \\"arguments\\": "}, "more": '
            '[{"tool": "lookup_documents", "arguments": {"query": "q"}}]}'
        )
        before = (user("?"), called(ToolCall(id="call_1", name="a"), ToolCall(id="call_2", name="b")))
        visible, text, calls = read(raw, messages=before)
        assert (visible, text) == ("", "")
        assert [(call.id, call.name) for call in calls] == [("call_3", "weather.now"), ("call_4", "lookup_documents")]
        assert calls[0].arguments == {"city": '{"tool": "x", "arguments": '}

    def test_cut_replies_give_what_there_is(self) -> None:
        assert read('{"tool": "answer", "text": "Three mon\\')[1] == "Three mon"
        assert read('{"tool": "answ')[1:] == ("", (ToolCall(id="call_1", name="answ", malformed='{"tool": "answ'),))
        assert read('{"to')[2] == (ToolCall(id="call_1", name="", malformed='{"to'),)
        assert read("")[1:] == ("", ())
        (cut,) = read('{"tool": "weather.now", "arguments": {"city": "Os')[2]
        assert cut == ToolCall(id="call_1", name="weather.now", malformed='{"city": "Os')
        whole, cut = read('{"tool": "weather.now", "arguments": {"city": "Oslo"}, "more": [{"tool": "weat')[2]
        assert whole.arguments == {"city": "Oslo"}
        assert (cut.id, cut.name, cut.malformed) == ("call_2", "weat", '{"tool": "weat')

    @given(st.integers(min_value=0, max_value=200))
    def test_no_cut_raises(self, length: int) -> None:
        raw = (
            '{"tool": "weather.now", "arguments": {"city": "\\ud83d\\ude00"}, "more": [{"tool": "x", "arguments": {}}]}'
        )
        read(raw[:length])
        read('{"tool": "answer", "text": "\\ud83d\\ude00 and more"}'[:length])

    def test_a_structured_answer_beside_tools(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        text = read('{"tool": "answer", "text": {"n": 3}}', output_schema=schema)[1]
        assert json.loads(text) == {"n": 3}

    @given(st.text(st.characters(), max_size=30), st.booleans(), st.data())
    def test_the_decoder_agrees_with_json_over_any_chunking(self, text: str, ascii_only: bool, data: Any) -> None:
        """Half surrogate pairs, which `st.characters()` includes, come out as U+FFFD."""
        inside = json.dumps(text, ensure_ascii=ascii_only)[1:] + ', "more": 1}'
        cuts = sorted(data.draw(st.lists(st.integers(0, len(inside)), max_size=8)))
        decoder = JsonStringDecoder()
        pieces = [inside[a:b] for a, b in zip([0, *cuts], [*cuts, len(inside)], strict=True)]
        known = "".join(decoder.feed(piece) for piece in pieces)
        assert decoder.closed
        expected = json.loads(json.dumps(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if ascii_only:
            assert known == decoder.text == expected
        else:
            assert known.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == expected


class TestSchemas:
    @pytest.mark.parametrize(
        ("odd", "simple"),
        [
            ({"type": "dict"}, {"type": "object", "properties": {}, "required": [], "additionalProperties": True}),
            ({"type": "float"}, {"type": "number"}),
            ({"type": "tuple", "items": {"type": "int"}}, {"type": "array", "items": {"type": "integer"}}),
            ({"type": "array", "items": [{"type": "str"}, {"type": "bool"}]}, "tuple"),
            ({"type": "any"}, {}),
            ({"type": "String", "format": "email", "pattern": "^(?=x)"}, {"type": "string"}),
            ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ({"type": "integer", "nullable": True}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            ({"type": "integer", "minimum": 1.5, "maximum": 5}, {"type": "integer", "minimum": 2, "maximum": 5}),
            ({"type": "number", "minimum": 9, "maximum": 1}, {"type": "number"}),
            ({"enum": []}, {}),
            ({"enum": ["a", float("nan")]}, {"enum": ["a"]}),
            ({"const": 3, "type": "odd"}, {"const": 3}),
            ({"oneOf": [{"type": "string"}, {"type": "string"}]}, {"type": "string"}),
            ({"not": {}, "uniqueItems": True}, {}),
            (True, {}),
            (None, {}),
        ],
    )
    def test_odd_schemas_become_plain(self, odd: Any, simple: Any) -> None:
        if simple == "tuple":
            simple = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}
        assert simplify_schema(odd) == simple

    def test_objects_are_closed_and_ask_only_for_what_they_have(self) -> None:
        odd = {"properties": {"a": {"type": "string"}}, "required": ["a", "gone"], "$defs": {}}
        assert simplify_schema(odd) == {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        }
        for broken in ({"type": "object", "properties": None}, {"type": "object", "properties": [], "required": "a"}):
            assert simplify_schema(broken)["additionalProperties"] is True
        assert simplify_schema({"type": "object", "additionalProperties": {"type": "float"}})[
            "additionalProperties"
        ] == {"type": "number"}

    def test_references_are_written_out(self) -> None:
        tree = {
            "type": "object",
            "properties": {"name": {"$ref": "#/$defs/a~1b"}, "child": {"$ref": "#"}, "lost": {"$ref": "#/nowhere/x"}},
            "$defs": {"a/b": {"type": "str"}},
        }
        simple = simplify_schema(tree)
        assert simple["properties"]["name"] == {"type": "string"}
        assert simple["properties"]["child"]["properties"]["name"] == {"type": "string"}
        assert simple["properties"]["lost"] == {}
        merged = simplify_schema(
            {"allOf": [{"$ref": "#/d"}, {"properties": {"b": {}}}], "d": {"properties": {"a": {}}}}
        )
        assert set(merged["properties"]) == {"a", "b"}

    def test_references_that_multiply_are_bounded(self) -> None:
        levels = {f"l{n}": {"properties": {f"p{i}": {"$ref": f"#/l{n + 1}"} for i in range(10)}} for n in range(10)}
        started = time.perf_counter()
        simplify_schema({"$ref": "#/l0", **levels})
        assert time.perf_counter() - started < 1

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "x"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_anything_at_all_gives_a_schema(self, anything: Any) -> None:
        json.dumps(simplify_schema(anything), allow_nan=False)


class TestConnect:
    def test_names(self) -> None:
        assert local.connect(MODEL).name == f"local/{MODEL}"
        assert local.connect(MODEL).parallel == 1
        with pytest.raises(ConfigError, match=r"Did you mean 'qwen2\.5-coder-0\.5b'"):
            local.connect("qwen2.5-coder-0.5")
        with pytest.raises(ConfigError, match="is no chat model; known: qwen"):
            local.connect("all-minilm-l6-v2")

    async def test_an_own_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        own = tmp_path / "mine.gguf"
        monkeypatch.setenv("AGENTLAB_LOCAL_MODEL", str(own))
        with pytest.raises(ConfigError, match="is not a file"):
            local.connect("whatever")
        own.write_bytes(b"not a GGUF file")
        model = local.connect("whatever")
        assert model.name == "local/mine"
        with pytest.raises(WeightsError, match=r"llama\.cpp cannot run .*mine\.gguf"):
            await model.complete(Request(messages=(user("Hi"),)), lambda text: None)
        assert model.pid is None
        await model.close()

    async def test_absent_weights_are_said(self, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
        monkeypatch.setenv("AGENTLAB_OFFLINE", "1")
        with pytest.raises(WeightsError, match="AGENTLAB_OFFLINE forbids"):
            await local.connect(MODEL).start()

    async def test_a_text_that_cannot_fit_is_refused_before_anything_starts(self) -> None:
        model = local.connect(MODEL)
        with pytest.raises(ContextOverflow, match="10000000 characters do not fit in 8192 tokens"):
            await model.complete(Request(messages=(user("x" * 10_000_000),)), lambda text: None)
        assert model.pid is None


@pytest.fixture(scope="session")
def shared_model() -> Iterator[local.LocalModel]:
    """The real model, one child for all tests; where its weights cannot be had, the tests fail with the reason."""
    weights.fetch(MODEL)
    model = local.connect(MODEL, context=2048)
    yield model
    asyncio.run(model.close())


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether the process ends in time; a zombie counts as not gone."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


class TestRealModel:
    async def ask(self, model: local.LocalModel, *messages: Message, **options: Any) -> tuple[Completion, list[str]]:
        pieces: list[str] = []
        options = {"temperature": 0, "seed": 7, "max_tokens": 48, **options}
        completion = await model.complete(Request(messages=messages, **options), pieces.append)
        return completion, pieces

    async def test_chat_streams_and_counts(self, shared_model: local.LocalModel) -> None:
        completion, pieces = await self.ask(shared_model, user("What is the capital of France?"))
        assert "Paris" in completion.message.text
        assert "".join(pieces) == completion.message.text
        assert len(pieces) > 1
        assert completion.model == MODEL
        assert completion.finish_reason == "stop"
        usage = completion.usage
        assert usage.input_tokens and usage.input_tokens > 10
        assert usage.output_tokens and len(pieces) <= usage.output_tokens <= 48
        assert usage.cached_tokens == 0

    async def test_the_same_request_gets_the_same_reply(self, shared_model: local.LocalModel) -> None:
        first = await self.ask(shared_model, user("Write a short poem about rain."))
        await self.ask(shared_model, user("Write a short poem about snow."))
        assert await self.ask(shared_model, user("Write a short poem about rain.")) == first
        assert first[0].finish_reason == "length"

    async def test_a_question_becomes_a_call_and_its_result_an_answer(self, shared_model: local.LocalModel) -> None:
        question = user("How long is the notice period for tenants?")
        completion, pieces = await self.ask(shared_model, question, tools=(LOOKUP,))
        assert completion.finish_reason == "tool_calls"
        (call,) = completion.message.tool_calls
        assert (call.id, call.name) == ("call_1", "lookup_documents")
        assert "notice" in call.arguments["query"]
        assert pieces == []
        found = result("call_1", "Tenants may give notice; the notice period for tenants is three months.")
        completion, pieces = await self.ask(shared_model, question, completion.message, found, tools=(LOOKUP,))
        assert completion.message.tool_calls == ()
        assert "three months" in completion.message.text
        assert "".join(pieces) == completion.message.text
        assert len(pieces) > 1

    async def test_small_talk_is_answered(self, shared_model: local.LocalModel) -> None:
        completion, _ = await self.ask(shared_model, user("Thank you, that helps a lot!"), tools=(LOOKUP, WEATHER))
        assert completion.message.tool_calls == ()
        assert completion.message.text

    async def test_tool_choice_is_honoured(self, shared_model: local.LocalModel) -> None:
        async def names(choice: str) -> list[str]:
            completion, _ = await self.ask(shared_model, user("Hello!"), tools=(LOOKUP, WEATHER), tool_choice=choice)
            return [call.name for call in completion.message.tool_calls]

        assert await names("required")
        assert set(await names("weather.now")) == {"weather.now"}
        assert await names("none") == []

    async def test_a_cut_call_is_kept(self, shared_model: local.LocalModel) -> None:
        completion, _ = await self.ask(
            shared_model, user("What is the weather in Oslo?"), tools=(WEATHER,), tool_choice="required", max_tokens=14
        )
        assert completion.finish_reason == "length"
        (call,) = completion.message.tool_calls
        assert call.malformed is not None
        assert call.name == "weather.now"

    async def test_a_schema_shapes_the_reply(self, shared_model: local.LocalModel) -> None:
        schema = {
            "type": "object",
            "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "int", "minimum": 1, "maximum": 5}},
            "required": ["verdict", "score"],
        }
        completion, pieces = await self.ask(shared_model, user("Is the sky blue?"), output_schema=schema)
        reply = json.loads(completion.message.text)
        assert reply["verdict"] in ("yes", "no")
        assert reply["score"] in range(1, 6)
        assert "".join(pieces) == completion.message.text

    async def test_too_long_for_the_context(self, shared_model: local.LocalModel) -> None:
        with pytest.raises(ContextOverflow, match="2048"):
            await self.ask(shared_model, user("word " * 4000))

    async def test_the_server_wants_its_key(self, shared_model: local.LocalModel) -> None:
        await shared_model.start()
        url = f"http://127.0.0.1:{shared_model._port}/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
            assert response.status == 401

    async def test_every_grammar_is_taken(self, shared_model: local.LocalModel) -> None:
        """The server ignores a grammar it cannot read and only says so in its log."""
        odd: list[dict[str, Any]] = [
            {"type": "dict", "properties": {"a": {"type": "tuple", "items": [{"type": "float"}, {}]}}},
            {"properties": {'é"\\': {"enum": ["\n", 1, None]}}, "required": ['é"\\']},
            {"type": "object", "properties": {"x": {"$ref": "#"}, "y": {"allOf": [{"type": "int"}], "minimum": 2}}},
            {"type": "object", "properties": {"d": {"format": "date", "pattern": "(", "type": "date"}, "": {}}},
        ]
        sets = [[ToolSpec(name=f"odd.{n}", description="", parameters=p) for n, p in enumerate(odd)]]
        for path in sorted(DATASETS.glob("*/conversations.jsonl")):
            found = {
                json.dumps(tool): ToolSpec(**tool)
                for line in path.read_text(encoding="utf-8").splitlines()
                for tool in json.loads(line).get("tools") or ()
            }
            tools = list(found.values())
            sets += [tools[i : i + 40] for i in range(0, len(tools), 40)]
        await shared_model.start()
        url = f"http://127.0.0.1:{shared_model._port}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {shared_model._key}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            for tools in sets:
                request = Request(messages=(user("Go!"),), tools=tuple(tools), tool_choice="required", max_tokens=3)
                body = {
                    "messages": [{"role": "user", "content": "Go!"}],
                    "max_tokens": 3,
                    **protocol.constraint(request, tools, MODEL),
                }
                async with session.post(url, json=body) as response:
                    reply = await response.json()
                assert reply["choices"][0]["message"]["content"].startswith('{"tool'), tools
        assert shared_model._log is not None
        assert "llg error" not in shared_model._log.read_text(encoding="utf-8", errors="replace")

    async def test_a_child_that_died_is_replaced(self, shared_model: local.LocalModel) -> None:
        await shared_model.start()
        pid = shared_model.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert shared_model._process is not None
        shared_model._process.wait()
        completion, _ = await self.ask(shared_model, user("Hi"), max_tokens=2)
        assert completion.message.text
        assert shared_model.pid not in (None, pid)

    async def test_a_child_that_dies_while_it_answers_is_unreachable(self, shared_model: local.LocalModel) -> None:
        def kill(piece: str) -> None:
            if shared_model.pid is not None:
                os.kill(shared_model.pid, signal.SIGKILL)

        request = Request(messages=(user("Count to one hundred in words."),), max_tokens=200)
        with pytest.raises(Unreachable):
            await shared_model.complete(request, kill)

    async def test_closing_ends_the_child(self, shared_model: local.LocalModel) -> None:
        await shared_model.start()
        pid, log = shared_model.pid, shared_model._log
        assert pid is not None and log is not None and log.exists()
        await shared_model.close()
        assert gone(pid, 1)
        assert shared_model.pid is None and not log.exists()
        await shared_model.close()

    def test_the_child_ends_with_a_killed_parent(self, shared_model: local.LocalModel) -> None:
        script = textwrap.dedent(f"""
            import asyncio, time
            from agentlab.models.local.model import connect
            model = connect("{MODEL}", context=512)
            asyncio.run(model.start())
            print(model.pid, flush=True)
            time.sleep(600)
        """)
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            parent.kill()
        assert gone(child)


def test_the_server_module_runs_by_name() -> None:
    command = [sys.executable, "-m", llama_server.__name__, "--model", "absent.gguf"]
    environment = os.environ | {llama_server.KEY_VARIABLE: "k"}
    # Its input stays open: it ends by itself, and says why.
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read() == b""
        assert b"absent.gguf" in process.stderr.read()
    assert process.returncode == 1
