"""Answers as servers really send them, each by the front door: a session over a server on this machine."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentlab.core.errors import ModelError
from agentlab.core.events import ModelCall, Notice
from agentlab.core.messages import Completion, ToolSpec
from agentlab.flows import rag_only
from agentlab.models.chat_reading import ChatReader
from agentlab.models.openai import connect
from agentlab.wire import retries
from support.doubles import session_over
from support.fake_openai import serving
from support.wire_forms import siblings

FORMS = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text(encoding="utf-8")) + siblings("answer")
TOOLS = [
    ToolSpec(name=name, description="Looks.", parameters={"type": "object", "properties": {}})
    for name in ("look", "lookup")
]


def body_of(form: dict[str, Any]) -> bytes:
    if "body" in form:
        return form["body"].encode()
    events = [c if isinstance(c, str) else json.dumps({"choices": [c]}) for c in form["chunks"]]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def read_of(completion: Completion) -> dict[str, Any]:
    calls = [[call.id, call.name, call.malformed or call.arguments] for call in completion.message.tool_calls]
    return {"text": completion.text, "thought": completion.thought, "calls": calls}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retries, "BACKOFF_SECONDS", 0.0)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["form"])
async def test_each_form_has_its_one_meaning(form):
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(serving(lambda body: {"whole": body_of(form)}))
        model = connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        stack.push_async_callback(model.close)
        session = session_over(rag_only, model)
        rendered: list[str] = []
        session.stream.on("reply_text", lambda item: rendered.append(item.text))
        session.stream.on("reply_taken_back", lambda item: rendered.clear())
        if "error" in form:
            with pytest.raises(ModelError) as caught:
                await session.complete("How many?", tools=TOOLS)
            assert re.search(form["error"], f"{type(caught.value).__name__}: {caught.value}")
            assert len(fake.seen) == form.get("attempts", 2)
            return
        completion = await session.complete("How many?", tools=TOOLS)
    assert read_of(completion) == {"text": "", "thought": "", "calls": []} | {
        name: form[name] for name in ("text", "thought", "calls") if name in form
    }
    assert "".join(rendered) == completion.text or completion.message.tool_calls
    assert len(fake.seen) == form.get("attempts", 1)
    assert completion.finish_reason == form.get("finish", completion.finish_reason)
    if "usage" in form:
        assert [completion.usage.input_tokens, completion.usage.output_tokens] == form["usage"]
    (call, *notices) = session.trace.events
    assert isinstance(call, ModelCall) and call.completion == completion
    noticed = " ".join(notice.text for notice in notices if isinstance(notice, Notice))
    assert form["stopped"] in noticed if "stopped" in form else not noticed


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form["form"].startswith("text-") and "chunks" in form], ids=lambda f: f["form"]
)
async def test_a_session_shows_no_fragment_of_a_mark_in_a_stream_of_characters(form):
    characters = "".join(choice["delta"].get("content", "") for choice in form["chunks"])
    response = {"deltas": [{"content": character} for character in characters], "finish": "stop"}
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(serving(lambda body: response))
        model = connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        stack.push_async_callback(model.close)
        session = session_over(rag_only, model)
        rendered: list[str] = []
        states: list[str] = []
        session.stream.on("reply_text", lambda item: (rendered.append(item.text), states.append("".join(rendered))))
        session.stream.on("reply_taken_back", lambda item: rendered.clear())
        completion = await session.complete("How many?", tools=TOOLS)
    assert (completion.text, completion.thought) == (form["text"], form.get("thought", ""))
    assert "".join(rendered) == completion.text
    # Only a second answer shows that the tags of the first one belong to the text.
    assert all(completion.text.startswith(state.rstrip()) or "two-answers" in form["form"] for state in states)


@pytest.mark.parametrize("size", [1, 97])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["form"])
def test_packets_that_are_cut_anywhere_change_nothing(form, size):
    def read(pieces: list[bytes]) -> Any:
        reader = ChatReader("m", lambda message: ModelError(str(message)))
        try:
            text = "".join(reader.feed(piece) for piece in [*pieces, b""])
            return text, reader.completion({"look": "look"})
        except (ModelError, ValueError) as problem:
            return type(problem)

    body = body_of(form)
    assert read([body[at : at + size] for at in range(0, len(body), size)]) == read([body])
