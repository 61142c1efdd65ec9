"""A local server with Gemini's generateContent that refuses the same requests as the real one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Response = dict[str, Any]
Body = dict[str, Any]

_TOP = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
_GENERATION = {"temperature", "topP", "topK", "seed", "maxOutputTokens", "stopSequences", "thinkingConfig"} | {
    "candidateCount",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
}
# Protobuf's JSON takes a field by its own name as well, and the SDK sends some that way.
_FUNCTION = {"name", "description", "parameters", "parametersJsonSchema", "parameters_json_schema"}
_DATA = {"text", "functionCall", "functionResponse", "inlineData"}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


class Refusal(Exception):
    """A request that the real server refuses with 400 INVALID_ARGUMENT."""


def _need(fine: Any, message: str) -> None:
    if not fine:
        raise Refusal(message)


def _fields(value: Any, allowed: set[str], location: str) -> None:
    _need(isinstance(value, dict), f"{location}: not an object")
    for name in value:
        _need(
            name in allowed, f'Invalid JSON payload received. Unknown name "{name}" at {location!r}: Cannot find field.'
        )


def check(body: Any) -> None:
    """Raise Refusal for a request that is not as the protocol has it."""
    _fields(body, _TOP, "")
    declared = _check_tools(body.get("tools", []))
    _check_tool_config(body.get("toolConfig", {}), declared)
    if "systemInstruction" in body:
        _fields(body["systemInstruction"], {"role", "parts"}, "system_instruction")
        for part in body["systemInstruction"].get("parts", []):
            _fields(part, {"text"}, "system_instruction.parts")
            _need(part["text"], "system_instruction: empty text")
    generation = body.get("generationConfig", {})
    _fields(generation, _GENERATION, "generation_config")
    if "responseJsonSchema" in generation:
        _need(generation.get("responseMimeType") == "application/json", "a response schema needs application/json")
    _need(
        isinstance(body.get("contents"), list) and body["contents"], "* GenerateContentRequest.contents: not specified"
    )
    before: list[dict[str, Any]] = []
    role = ""
    for content in body["contents"]:
        _fields(content, {"role", "parts"}, "contents")
        _need(content.get("role") in ("user", "model"), "Please use a valid role: user, model.")
        _need(content["role"] != role, "Please ensure that multiturn requests alternate between user and model.")
        role = content["role"]
        _need(isinstance(content.get("parts"), list) and content["parts"], "contents.parts must not be empty.")
        for part in content["parts"]:
            _check_part(part, role)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if role == "user":
            _check_results(before, results)
        _need(not calls or content is not body["contents"][0], "a function call turn comes after a user turn")
        before = calls


def _check_part(part: Any, role: str) -> None:
    _fields(part, _DATA | {"thought", "thoughtSignature"}, "contents.parts")
    _need(len(_DATA & part.keys()) == 1, "required oneof field 'data' must have one initialized field")
    if "thoughtSignature" in part:
        try:
            signature = base64.b64decode(part["thoughtSignature"].replace("-", "+").replace("_", "/"), validate=True)
        except binascii.Error:
            raise Refusal("thought_signature: Base64 decoding failed") from None
        _need(signature and role == "model", "a thought signature belongs to the model")
    if "text" in part:
        _need(isinstance(part["text"], str), "text: not a string")
        _need(part["text"] or "thoughtSignature" in part, "Unable to submit request because it has an empty text")
    for kind, owner, value in (("functionCall", "model", "args"), ("functionResponse", "user", "response")):
        if kind in part:
            _need(role == owner, f"{kind} in a turn of {role}")
            _fields(part[kind], {"id", "name", value}, f"contents.parts.{kind}")
            _need(_NAME.fullmatch(part[kind].get("name", "")), "Invalid function name.")
            _need(isinstance(part[kind].get(value, {}), dict), f"{kind}.{value}: not an object")


def _check_results(calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    _need(len(calls) == len(results), "the number of function response parts must equal that of the function calls")
    for call, result in zip(calls, results, strict=True):
        _need(call["name"] == result["name"], "a function response has the name of its call")
        _need(call.get("id") == result.get("id"), "a function response has the id of its call, where it has one")
        _need("response" in result, "function_response.response: required")


def _check_tools(tools: Any) -> list[str]:
    declared: list[str] = []
    for tool in tools:
        _fields(tool, {"functionDeclarations"}, "tools")
        for function in tool["functionDeclarations"]:
            _fields(function, _FUNCTION, "function_declarations")
            _need(_NAME.fullmatch(function["name"]), "Invalid function name.")
            _need(function["name"] not in declared, "Duplicate function declaration found")
            declared.append(function["name"])
    return declared


def _check_tool_config(config: Any, declared: list[str]) -> None:
    _fields(config, {"functionCallingConfig"}, "tool_config")
    calling = config.get("functionCallingConfig", {})
    _fields(calling, {"mode", "allowedFunctionNames"}, "tool_config.function_calling_config")
    mode, allowed = calling.get("mode", "AUTO"), calling.get("allowedFunctionNames", [])
    _need(mode in ("AUTO", "ANY", "NONE", "VALIDATED"), "Invalid value at 'function_calling_config.mode'")
    _need(not allowed or mode == "ANY", "allowed_function_names is only for mode ANY")
    _need(set(allowed) <= set(declared), "allowed_function_names: not declared")
    _need(not calling or declared, "Function calling config is set without function_declarations.")


class FakeGemini:
    """`respond(body)` returns the response; `seen` keeps bodies, with their `headers` and `models`."""

    def __init__(self, respond: Callable[[Body], Response]) -> None:
        self.respond = respond
        self.seen: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.models: list[str] = []
        self.left = asyncio.Event()
        """Set when a client hangs up on a response that `hang`s."""
        self.base_url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        self.headers.append(dict(request.headers))
        self.models.append(request.match_info["model"])
        streamed = request.path.endswith(":streamGenerateContent")
        try:
            check(body)
            _need(not streamed or request.query.get("alt") == "sse", "this server streams events only")
        except Refusal as refusal:
            return web.json_response(error(400, str(refusal), "INVALID_ARGUMENT"), status=400)
        scripted = self.respond(body)
        if scripted.get("gone"):
            assert request.transport is not None
            request.transport.close()
        if "status" in scripted:
            given = scripted.get(
                "body", error(scripted["status"], scripted.get("message", "no"), "", *scripted.get("details", ()))
            )
            return web.json_response(given, status=scripted["status"], headers=scripted.get("headers", {}))
        if not streamed:
            return web.json_response(scripted["chunks"][0])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in scripted.get("chunks", ()):
            await response.write(f"data: {json.dumps({'modelVersion': 'served-model', **chunk})}\r\n\r\n".encode())
        for piece in scripted.get("raw", ()):
            await response.write(piece.encode())
        if scripted.get("drop"):
            assert request.transport is not None
            request.transport.close()
            return response
        while scripted.get("hang"):
            await asyncio.sleep(0.01)
            if request.transport is None or request.transport.is_closing():
                self.left.set()
                return response
        await response.write_eof()
        return response


@asynccontextmanager
async def serving(respond: Callable[[Body], Response]) -> AsyncIterator[FakeGemini]:
    fake = FakeGemini(respond)
    app = web.Application(client_max_size=2**25)
    for verb in ("streamGenerateContent", "generateContent"):
        app.router.add_post(f"/v1beta/models/{{model:[^:]+}}:{verb}", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def error(code: int, message: str, status: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one event of a stream; the last one of a response has a `finish` reason."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **more}


def response_of(*parts: dict[str, Any], finish: str | None = "STOP", **more: Any) -> Response:
    """Return a response with one event for each part and one for its end."""
    end = {"usageMetadata": more.pop("usage")} if "usage" in more else {}
    return {"chunks": [*(chunk(part) for part in parts), chunk(finish=finish, **end)], **more}


def text(*pieces: str, **more: Any) -> Response:
    return response_of(*({"text": piece} for piece in pieces), **more)


USAGE = {
    "promptTokenCount": 100,
    "toolUsePromptTokenCount": 5,
    "candidatesTokenCount": 12,
    "thoughtsTokenCount": 8,
    "cachedContentTokenCount": 64,
    "totalTokenCount": 125,
}
