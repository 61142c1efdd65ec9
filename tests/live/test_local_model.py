"""The real embedded model in its child process."""

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
from typing import Any

import aiohttp
import pytest

from agentlab.core.errors import ContextOverflow, Unreachable
from agentlab.core.messages import Completion, Message, Request, ToolSpec
from agentlab.models import weights
from agentlab.models.local import model as local
from agentlab.models.local import tool_protocol as protocol
from support.local_model import LOOKUP, MODEL, WEATHER, result, user
from support.paths import PUBLIC

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="session")
def shared_model() -> Iterator[local.LocalModel]:
    """The real model, one child for all tests; where its weights cannot be had, the tests fail with the reason."""
    weights.fetch(MODEL)
    model = local.connect(MODEL, context=2048)
    yield model
    asyncio.run(model.close())


def has_ended(pid: int, seconds: float = 10) -> bool:
    """Return True if the process ends in time; a zombie counts as running."""
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

    @pytest.mark.parametrize("cache", ["0", "200"])
    async def test_a_prompt_cache_reads_each_prefix_once(self, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
        monkeypatch.setenv("AGENTLAB_PROMPT_CACHE", cache)
        model = local.connect(MODEL, context=2048)
        message = user("Remember these words: " + " ".join(f"word{number}" for number in range(100)))
        try:
            await self.ask(model, message, max_tokens=4)
            completion, _ = await self.ask(model, message, user("Say yes."), max_tokens=4)
        finally:
            await model.close()
        assert ((completion.usage.cached_tokens or 0) > 200) == (cache != "0")

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
        passage = result("call_1", "Tenants may give notice; the notice period for tenants is three months.")
        completion, pieces = await self.ask(shared_model, question, completion.message, passage, tools=(LOOKUP,))
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

    async def test_a_truncated_call_is_returned(self, shared_model: local.LocalModel) -> None:
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
        """The server ignores an unreadable grammar, with only a line in its log."""
        odd: list[dict[str, Any]] = [
            {"type": "dict", "properties": {"a": {"type": "tuple", "items": [{"type": "float"}, {}]}}},
            {"properties": {'é"\\': {"enum": ["\n", 1, None]}}, "required": ['é"\\']},
            {"type": "object", "properties": {"x": {"$ref": "#"}, "y": {"allOf": [{"type": "int"}], "minimum": 2}}},
            {"type": "object", "properties": {"d": {"format": "date", "pattern": "(", "type": "date"}, "": {}}},
        ]
        sets = [[ToolSpec(name=f"odd.{n}", description="", parameters=p) for n, p in enumerate(odd)]]
        for path in sorted(PUBLIC.glob("*/conversations.jsonl")):
            results = {
                json.dumps(tool): ToolSpec(**tool)
                for line in path.read_text(encoding="utf-8").splitlines()
                for tool in json.loads(line).get("tools") or ()
            }
            tools = list(results.values())
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
        shared_model._log.seek(0)
        assert b"llg error" not in shared_model._log.read()

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
        assert pid is not None and log is not None and not log.closed
        await shared_model.close()
        assert has_ended(pid, 1)
        assert shared_model.pid is None and log.closed
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
        assert has_ended(child)
