"""Unsupported parameters are left out or sent in another form: once, with one line, and for that model alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import BadRequest, ModelError
from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.models import openai
from support.fake_openai import Response, in_a_thread, serving, text
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

LOOKUP = ToolSpec(name="lookup", description="Looks things up.", parameters={"type": "object", "properties": {}})
SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}}
REQUEST = Request(
    messages=(Message(role="user", text="What is the temperature in Oslo?"),),
    temperature=0.2,
    seed=7,
    max_tokens=500,
)


def refusal_row(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def extra(name: str) -> dict[str, Any]:
    error = {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}
    return {"detail": [{**error, "input": {"seed": 1, "temperature": 0}}]}


NO_MAX_TOKENS = refusal_row(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)
NO_TEMPERATURE = refusal_row(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)


def refusing(*rules: tuple[Callable[[dict[str, Any]], Any], int, Any], response: Response | None = None) -> Any:
    """Return a server that responds with the first body whose condition fits the request."""

    def reply(body: dict[str, Any]) -> Response:
        hit = next(((status, message) for holds, status, message in rules if holds(body)), None)
        return response or text("Hi") if hit is None else {"status": hit[0], "body": hit[1]}

    return reply


def has(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda body: name in body


async def ask(reply: Any, request: Request = REQUEST, times: int = 2, model: str = "m") -> list[dict[str, Any]]:
    async with serving(reply) as fake:
        adapter = openai.connect(model, base_url=fake.base_url, api_key="key-of-a-test")
        try:
            for _ in range(times):
                await adapter.complete(request, lambda piece: None)
        finally:
            await adapter.close()
    return fake.seen


LEFT_OUT = {
    "temperature, by OpenAI": ("temperature", 400, NO_TEMPERATURE),
    "stream_options, by FastAPI": ("stream_options", 422, extra("stream_options")),
    "stream_options, by Cohere": ("stream_options", 400, refusal_row("stream_options: Extra inputs are not permitted")),
    "seed, by Google": (
        "seed",
        400,
        [{"error": {"code": 400, "message": 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'}}],
    ),
    "seed, by older servers": ("seed", 400, refusal_row("Unrecognized request argument supplied: seed")),
    "temperature, by xAI": (
        "temperature",
        400,
        {"code": "x", "error": "Model y does not support parameter temperature."},
    ),
    "seed, as a text": ("seed", 400, {"code": "x", "error": "Argument not supported on this model: seed"}),
    "seed, by AWS": ("seed", 400, {"message": "Malformed input request: #: extraneous key [seed] is not permitted"}),
    "seed, by Groq": ("seed", 400, refusal_row("property 'seed' is unsupported")),
    "seed, no field": ("seed", 400, {"message": "invalid request: parameter 'seed' is not a valid field"}),
    "temperature, one value": ("temperature", 400, refusal_row("temperature: only 1 is allowed for this model")),
    "temperature, for thinkers": (
        "temperature",
        422,
        {"error": "Invalid temperature: must be 1.0 for reasoning models"},
    ),
    "seed, not implemented": ("seed", 501, {"error": {"message": "seed is not supported", "type": "not_implemented"}}),
    "temperature, by Bedrock": ("temperature", 400, {"message": "`temperature` is deprecated for this model."}),
    "stream_options, by Mistral": ("stream_options", 422, {"object": "error", "message": extra("stream_options")}),
    "Seed, not compatible": ("seed", 400, refusal_row("Seed is incompatible with this model")),
    "streamOptions": ("stream_options", 400, refusal_row("Model y does not support parameter streamOptions.")),
}


@pytest.mark.parametrize("case", LEFT_OUT)
async def test_unsupported_parameter_is_left_out_and_reported_once(case, caplog):
    name, status, message = LEFT_OUT[case]
    first, second, third = await ask(refusing((has(name), status, message)))
    assert name in first and name not in second and second == third
    assert {key: value for key, value in first.items() if key != name} == second
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"openai/m: HTTP {status}") and f"sent without {name})" in line and "\n" not in line


async def test_refused_limit_tries_its_other_name_and_then_none(caplog):
    _, second, third = await ask(refusing((has("max_tokens"), 400, NO_MAX_TOKENS)))
    assert second["max_completion_tokens"] == 500 and "max_tokens" not in second and second == third
    (line,) = [record.getMessage() for record in caplog.records]
    assert "sent with max_completion_tokens in place of max_tokens)" in line
    rules = (has("max_tokens"), 400, NO_MAX_TOKENS), (has("max_completion_tokens"), 422, extra("max_completion_tokens"))
    last = (await ask(refusing(*rules)))[-1]
    assert not {"max_tokens", "max_completion_tokens"} & set(last)


async def test_two_parameters_are_refused_one_after_the_other(caplog):
    bodies = await ask(refusing((has("max_tokens"), 400, NO_MAX_TOKENS), (has("temperature"), 400, NO_TEMPERATURE)))
    assert len(bodies) == 4
    assert bodies[2] == bodies[3] and bodies[2]["max_completion_tokens"] == 500 and "temperature" not in bodies[2]
    assert len(caplog.records) == 2


RETAINED = {
    "out of range": (
        400,
        refusal_row("Invalid 'temperature': decimal above maximum value. Expected a value <= 2.", "temperature"),
    ),
    "too large": (400, refusal_row("max_tokens is too large: 500. This model supports at most 100.", "max_tokens")),
    "no such model": (
        404,
        refusal_row("The model `m` does not exist or you do not have access to it.", "model", "model_not_found"),
    ),
    "a message": (
        400,
        refusal_row("Invalid value for 'content': expected a string, got null.", "messages.[0].content"),
    ),
    "a filter": (
        400,
        refusal_row(
            "Rejected by our safety system: text about temperature is not allowed.", None, "content_policy_violation"
        ),
    ),
    "no tools": (400, refusal_row("registry.ollama.ai/library/gemma:7b does not support tools")),
    "vLLM's default": (
        400,
        {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'},
    ),
}


@pytest.mark.parametrize("case", RETAINED)
async def test_other_bad_requests_keep_the_server_message(case):
    status, message = RETAINED[case]
    bodies: list[dict[str, Any]] = []

    def reply(body: dict[str, Any]) -> Response:
        bodies.append(body)
        return {"status": status, "body": message}

    words = message["message"] if "message" in message else message["error"]["message"]
    with pytest.raises(ModelError) as caught:
        await ask(reply, Request(**{**_fields(REQUEST), "tools": (LOOKUP,)}))
    assert words[:40] in str(caught.value) and len(bodies) == 1


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


async def test_a_server_that_says_the_same_again_is_not_asked_for_ever():
    bodies: list[dict[str, Any]] = []

    def reply(body: dict[str, Any]) -> Response:
        bodies.append(body)
        return {"status": 400, "body": refusal_row("Unrecognized request argument supplied: seed")}

    with pytest.raises(BadRequest, match="supplied: seed"):
        await ask(reply)
    assert ["seed" in body for body in bodies] == [True, False]


FORMATS = {
    "DeepSeek": refusal_row("This response_format type is unavailable now"),
    "OpenAI": refusal_row(
        "Invalid schema for response_format 'r': 'additionalProperties' is required", "response_format"
    ),
    "LM Studio": {"error": "'response_format.type' must be 'json_object' or 'text'"},
    "FastAPI": extra("response_format"),
}


@pytest.mark.parametrize("case", FORMATS)
@pytest.mark.parametrize("plain_object", [True, False])
async def test_unsupported_schema_moves_into_the_prompt(case, plain_object, caplog):
    def refused(body: dict[str, Any]) -> bool:
        return body.get("response_format", {}).get("type") in (
            "json_schema",
            *(() if plain_object else ("json_object",)),
        )

    request = Request(**{**_fields(REQUEST), "output_schema": SCHEMA})
    bodies = await ask(refusing((refused, 400, FORMATS[case])), request)
    assert len(bodies) == (3 if plain_object else 4) and len(caplog.records) == (1 if plain_object else 2)
    assert bodies[-1].get("response_format") == ({"type": "json_object"} if plain_object else None)
    system, *rest = bodies[-1]["messages"]
    assert "JSON" in system["content"] and json.dumps(SCHEMA) in system["content"]
    assert rest == bodies[0]["messages"]


async def test_a_choice_of_tools_is_left_out_by_its_value():
    def refused(body: dict[str, Any]) -> bool:
        return body.get("tool_choice") == "none"

    message = refusal_row("deepseek-reasoner does not support this tool_choice")
    async with serving(refusing((refused, 400, message))) as fake:
        model = openai.connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        for choice in ("none", "required"):
            request = Request(**{**_fields(REQUEST), "tools": (LOOKUP,), "tool_choice": choice})
            await model.complete(request, lambda piece: None)
        await model.close()
    assert [body.get("tool_choice") for body in fake.seen] == ["none", None, "required"]
    assert all(len(body["tools"]) == 1 for body in fake.seen)


NINE = "Tool call id was call_8f14e45fceea167a but must be a-z, A-Z, 0-9, with a length of 9."


@pytest.mark.parametrize("always", [True, False])
async def test_short_ids_of_tool_calls_go_out_where_a_server_wants_them(always, caplog):
    def refused(body: dict[str, Any]) -> bool:
        return always or any(len(message.get("tool_call_id", 9 * "x")) != 9 for message in body["messages"])

    calls = tuple(ToolCall(id=name, name="lookup", arguments={}) for name in ("call_8f14e45fceea167a", "abcdefgh1"))
    results = [Message(role="tool", text="42", tool_call_id=call.id) for call in calls]
    request = Request(
        messages=(Message(role="user", text="Hi"), Message(role="agent", text="", tool_calls=calls), *results)
    )
    server = refusing((refused, 400, refusal_row(NINE)))
    if always:
        with pytest.raises(BadRequest, match="length of 9"):
            await ask(server, request)
        return
    *_, last = bodies = await ask(server, request)
    sent = [call["id"] for call in last["messages"][1]["tool_calls"]]
    assert sent == [message["tool_call_id"] for message in last["messages"][2:4]] and sent[1] == "abcdefgh1"
    assert len(sent[0]) == 9 and sent[0].isalnum() and len(bodies) == 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert "with short ids of tool calls)" in line


async def test_parameter_refused_by_one_model_is_sent_to_another():
    async with serving(refusing((lambda body: body["model"] == "one", 400, NO_TEMPERATURE))) as fake:
        for name in ("one", "two"):
            model = openai.connect(name, base_url=fake.base_url, api_key="key-of-a-test")
            if name == "one":
                with pytest.raises(BadRequest):
                    await model.complete(REQUEST, lambda piece: None)
            else:
                await model.complete(REQUEST, lambda piece: None)
            await model.close()
    assert fake.seen[-1]["model"] == "two" and fake.seen[-1]["temperature"] == 0.2


def eaten(limit: int) -> Response:
    usage = {"prompt_tokens": 20, "completion_tokens": limit, "completion_tokens_details": {"reasoning_tokens": limit}}
    return {"finish": "length", "usage": usage}


async def test_a_model_whose_thought_left_no_room_is_asked_again_with_room(caplog):
    def reply(body: dict[str, Any]) -> Response:
        return (
            eaten(body["max_tokens"])
            if body["max_tokens"] < 1000
            else text("Hi", usage={"prompt_tokens": 20, "completion_tokens": 9})
        )

    async with serving(reply) as fake:
        model = openai.connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        completions = [await model.complete(REQUEST, lambda piece: None) for _ in range(2)]
        await model.close()
    assert [body["max_tokens"] for body in fake.seen] == [500, 4500, 4500]
    assert [completion.text for completion in completions] == ["Hi", "Hi"]
    assert [c.usage.output_tokens for c in completions] == [509, 9], "what was thought in vain is paid for"
    assert len(caplog.records) == 1 and "4000 tokens" in caplog.text


@pytest.mark.parametrize("says_how_much", [True, False])
async def test_a_reply_that_thought_ate_says_so(says_how_much, caplog):
    def reply(body: dict[str, Any]) -> Response:
        thought = {"deltas": [{"content": "<think>Oslo lies"}], "finish": "length"}
        return eaten(body["max_tokens"]) if says_how_much else thought

    request = Request(**{**_fields(REQUEST), "thought_tokens": 100})
    async with serving(reply) as fake:
        model = openai.connect("m", base_url=fake.base_url, api_key="key-of-a-test")
        completion = await model.complete(request, lambda piece: None)
        await model.close()
    assert [body["max_tokens"] for body in fake.seen] == [600]
    assert (completion.text, completion.finish_reason) == ("", "length")
    assert completion.stopped.startswith("truncated at 600 tokens, all of them thought") and not caplog.records


@pytest.mark.parametrize("generation", [None, {"temperature": None, "seed": None, "max_tokens": None}])
def test_gpt_5_mini_runs_with_default_settings_and_each_may_be_null(
    generation, tmp_path, own_home, monkeypatch, caplog
):
    caplog.set_level(logging.WARNING, "agentlab.models")
    spec = {"generation": generation} if generation else {}
    rules = refusing((has("max_tokens"), 400, NO_MAX_TOKENS), (has("temperature"), 400, NO_TEMPERATURE))
    data = write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    with in_a_thread(rules) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(
            model="openai/gpt-5-mini", datasets=[str(data)], embedder="hashing/hashing-64", flows=["rag_only"], **spec
        ) as lab:
            summary = lab.run_sync(out=tmp_path / "run").summary
    assert (summary["status"], summary["flows"]["rag_only"]["errors"]) == ("complete", 0)
    texts = [record for record in caplog.records if record.name.startswith("agentlab.models")]
    if generation:
        assert not texts and not {"temperature", "seed", "max_tokens", "max_completion_tokens"} & set(fake.seen[0])
    else:
        assert len(texts) == 2 and len(fake.seen) == 8
        assert fake.seen[-1]["max_completion_tokens"] == 4256 and "temperature" not in fake.seen[-1]
