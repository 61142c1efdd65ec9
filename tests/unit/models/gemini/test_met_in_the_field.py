"""Gemini as people met it: failed and streamed calls, signatures, stops of the server."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from agentlab.core.errors import ModelError, Retryable, ServerFault
from agentlab.core.messages import Completion, Message, Request, ToolCall, ToolSpec, Usage
from agentlab.models.gemini import GeminiModel
from agentlab.models.keys import KeyRing
from support.fake_gemini import serving
from support.wire_forms import siblings

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:BRAND_NEW is not a valid"),
]
LOOKUP = ToolSpec(name="lookup", description="x", parameters={"type": "object", "properties": {}})
USER = Message(role="user", text="Hello")
SIGNATURE = base64.b64encode(b"signed").decode()


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [*parts]}} if parts else {}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {}) | more]}


def call(name: str | None = None, signature: str = "", **facts: Any) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"functionCall": named | facts} | ({"thoughtSignature": signature} if signature else {})


def partial(path: str, **value: Any) -> dict[str, Any]:
    return call(partialArgs=[{"jsonPath": path, **value}], willContinue=True)


async def completed(*responses: list[Any], messages: Any = (USER,), model: str = "gemini-2.5-flash") -> tuple[Any, Any]:
    """Return the completion or error, and the bodies that the server received; the server repeats its last response."""
    left = list(responses)
    async with serving(lambda body: {"chunks": left.pop(0) if len(left) > 1 else left[0]}) as fake:
        adapter = GeminiModel(model, base_url=fake.base_url, keys=KeyRing(["k"]))
        try:
            return await adapter.complete(Request(messages=messages, tools=(LOOKUP,)), lambda text: None), fake.seen
        except ModelError as error:
            return error, fake.seen
        finally:
            await adapter.close()


FAILED = {
    "without a word": [chunk(finish="MALFORMED_FUNCTION_CALL")],
    "with a message": [chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="print(default_api.lookup(q='x'))")],
    "undeclared": [chunk(call("nowhere", args={"a": "1"}), finish="UNEXPECTED_TOOL_CALL", finishMessage="nowhere")],
}


@pytest.mark.parametrize("first", FAILED.values(), ids=FAILED)
async def test_a_failed_call_is_reported_to_the_model_once(first):
    usage = {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}}
    response = [chunk({"text": "Paris."}, finish="STOP") | usage]
    completion, bodies = await completed([first[0] | usage], response)
    assert (completion.text, completion.message.tool_calls) == ("Paris.", ())
    assert completion.usage.input_tokens == 10 and completion.usage.output_tokens == 4
    text = bodies[1]["contents"][-1]["parts"][-1]["text"]
    assert len(bodies) == 2 and "'functionCall':" not in str(bodies)
    assert first[0]["candidates"][0]["finishReason"] in text
    assert "nowhere" in text or "nowhere" not in str(first), "the tool is named"


@pytest.mark.parametrize("first", FAILED.values(), ids=FAILED)
async def test_a_call_that_failed_twice_is_reported_and_not_tried_again(first):
    error, bodies = await completed(first)
    assert "function call cannot be read" in str(error) and not isinstance(error, Retryable) and len(bodies) == 2


async def test_calls_beside_one_that_failed_are_calls():
    completion, bodies = await completed([chunk(call("lookup", args={"q": "x"}), finish="MALFORMED_FUNCTION_CALL")])
    assert completion.message.tool_calls[0].arguments == {"q": "x"} and len(bodies) == 1


PIECES = {
    "nested": (
        [
            call("book", willContinue=True),
            partial("$.city", stringValue="Par", willContinue=True),
            partial("$.city", stringValue="is"),
            partial("$.guests[0].age", numberValue=7),
            partial("$.guests[1].age", numberValue=9.5),
            partial("$.late", boolValue=False),
            partial("$['note']", nullValue="NULL_VALUE"),
            call(),
        ],
        [("book", {"city": "Paris", "guests": [{"age": 7}, {"age": 9.5}], "late": False, "note": None})],
    ),
    "two of one name": (
        [
            call("lookup", willContinue=True),
            partial("$.q", stringValue="x"),
            call(),
            call("lookup", willContinue=True),
            partial("$.q", stringValue="y"),
            call(),
        ],
        [("lookup", {"q": "x"}), ("lookup", {"q": "y"})],
    ),
    "a name ends the one before": (
        [call("a", willContinue=True), partial("$.q", stringValue="x"), call("b", args={"n": 1})],
        [("a", {"q": "x"}), ("b", {"n": 1})],
    ),
    "values that are false": (
        [call("set", willContinue=True), partial("$.n", numberValue=0), partial("$.s", stringValue=""), call()],
        [("set", {"n": 0, "s": ""})],
    ),
    "never ended": ([call("a", willContinue=True), partial("$.q", stringValue="x")], [("a", {"q": "x"})]),
    "whole": ([call("a", args={"q": "x"}), call("a", args={"q": "y"})], [("a", {"q": "x"}), ("a", {"q": "y"})]),
    "no arguments": ([call("now")], [("now", {})]),
}


@pytest.mark.parametrize("is_one_chunk", [True, False])
@pytest.mark.parametrize(("parts", "calls"), PIECES.values(), ids=PIECES)
async def test_a_call_in_pieces_is_one_call(parts, calls, is_one_chunk):
    chunks = [chunk(*parts, finish="STOP")] if is_one_chunk else [*map(chunk, parts), chunk(finish="STOP")]
    completion, bodies = await completed(chunks)
    assert [(made.name, made.arguments) for made in completion.message.tool_calls] == calls
    assert completion.finish_reason == "tool_calls" and len(bodies) == 1


@pytest.mark.parametrize("path", ["", "$", "city", "$.a[999999999]", "$..x"])
async def test_a_path_that_is_none_is_a_response_that_cannot_be_read(path):
    error, _ = await completed([chunk(call("a", willContinue=True), partial(path, stringValue="x"), finish="STOP")])
    assert isinstance(error, ServerFault)


@pytest.mark.parametrize("form", siblings("gemini"), ids=lambda form: form["form"])
async def test_each_form_of_an_answer_has_its_one_meaning(form):
    completion, _ = await completed(form["chunks"])
    if "error" in form:
        assert isinstance(completion, ModelError)
        assert re.search(form["error"], f"{type(completion).__name__}: {completion}")
        return
    calls = [[made.name, made.malformed or made.arguments] for made in completion.message.tool_calls]
    assert (completion.text, calls) == (form.get("text", ""), form.get("calls", []))
    assert completion.finish_reason == form.get("finish", completion.finish_reason)
    assert [completion.usage.input_tokens, completion.usage.output_tokens] == form.get("usage", [None, None])


async def sent_after(parts: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """The contents of the request after a response of these parts and the results of its calls."""
    completion, _ = await completed([chunk(*parts, finish="STOP")], model=model)
    assert isinstance(completion, Completion)
    results = [Message(role="tool", text="r", tool_call_id=c.id, name=c.name) for c in completion.message.tool_calls]
    _, bodies = await completed(
        [chunk({"text": "ok"}, finish="STOP")], messages=(USER, completion.message, *results), model=model
    )
    return bodies[0]["contents"]


async def test_arguments_that_are_no_object_go_back_to_the_model_as_text():
    _, model, user = await sent_after([call("lookup", args="look for x")], "gemini-2.5-flash")
    assert model["parts"][0]["functionCall"]["args"] == {"malformed": "look for x"}
    assert "functionResponse" in user["parts"][0]


async def test_signatures_go_back_where_they_stood():
    _, model, user = await sent_after(
        [call("lookup", SIGNATURE, args={"q": "x"}), call("lookup", args={"q": "y"})], "gemini-3-pro"
    )
    first, second = model["parts"]
    assert first["thoughtSignature"] == SIGNATURE and "thoughtSignature" not in second
    assert [part["functionCall"]["args"] for part in model["parts"]] == [{"q": "x"}, {"q": "y"}]
    assert ["functionResponse" in part for part in user["parts"]] == [True, True]


async def test_a_signature_on_an_empty_text_is_kept_with_the_text():
    chunks = [chunk({"text": "Paris."}), chunk({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP")]
    completion, _ = await completed(chunks, model="gemini-3-pro")
    assert completion.text == "Paris."
    completion, _ = await completed([chunk({"text": "ok"}, finish="STOP")], messages=(USER, completion.message, USER))
    assert completion.text == "ok", "the server takes it back"


async def test_a_call_whose_signature_cannot_be_read_goes_back_as_words():
    contents = await sent_after([call("lookup", "no base64!", args={"q": "x"})], "gemini-3-pro")
    assert '"q": "x"' in str(contents) and "functionCall" not in str(contents)


@pytest.mark.parametrize(("model", "as_calls"), [("gemini-3-pro", False), ("gemini-2.5-flash", True)])
async def test_calls_of_another_provider_are_words_for_models_that_want_signatures(model, as_calls):
    made = Message(role="agent", tool_calls=(ToolCall(id="c", name="lookup", arguments={"q": "x"}),))
    result = Message(role="tool", text="seven", tool_call_id="c", name="lookup")
    _, bodies = await completed([chunk({"text": "ok"}, finish="STOP")], messages=(USER, made, result), model=model)
    contents = bodies[0]["contents"]
    assert ("'functionCall':" in str(contents), "functionResponse" in str(contents)) == (as_calls, as_calls)
    assert '"q": "x"' in str(contents) or as_calls
    assert "seven" in str(contents)


async def test_a_call_that_never_was_one_goes_out_as_words():
    lost = Message(role="agent", tool_calls=(ToolCall(id="c", name="", malformed="MALFORMED_FUNCTION_CALL"),))
    message = Message(role="tool", text="Error: there is no tool ''", tool_call_id="c", name="")
    _, bodies = await completed([chunk({"text": "ok"}, finish="STOP")], messages=(USER, lost, message))
    assert "'functionCall':" not in str(bodies) and "MALFORMED_FUNCTION_CALL" in str(bodies[0]["contents"][1])


@pytest.mark.parametrize("reason", ["SAFETY", "SPII", "BLOCKLIST", "LANGUAGE", "IMAGE_SAFETY", "OTHER", "BRAND_NEW"])
async def test_a_stop_of_the_server_is_not_the_end_of_a_whole_response(reason):
    completion, bodies = await completed([chunk({"text": "First you"}), chunk(finish=reason)])
    stopped = "other" if reason in ("OTHER", "BRAND_NEW") else "content_filter"
    assert (completion.text, completion.finish_reason, len(bodies)) == ("First you", stopped, 1)
    assert completion.stopped == f"the server stopped the reply: {reason}"


async def test_a_finish_reason_before_the_text_is_no_end():
    completion, _ = await completed(
        [chunk(finish="STOP"), chunk({"text": "Par"}), chunk({"text": "is."}, finish="STOP")]
    )
    assert (completion.text, completion.finish_reason) == ("Paris.", "stop")


async def test_parts_of_other_kinds_lose_no_text():
    parts = [
        {"text": "Lyon? No.", "thought": True},
        {"executableCode": {"language": "PYTHON", "code": "print(7)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "7"}},
        {"text": "Seven."},
    ]
    completion, bodies = await completed([chunk(*parts, finish="STOP")])
    assert (
        (completion.text, completion.thought) == ("Seven.", "Lyon? No.")
        and completion.message.tool_calls == ()
        and len(bodies) == 1
    )


async def test_a_prompt_that_was_blocked_is_asked_once():
    feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
    completion, bodies = await completed([feedback])
    assert (completion.text, completion.finish_reason, len(bodies)) == ("", "content_filter", 1)
    assert completion.usage == Usage(input_tokens=9)
