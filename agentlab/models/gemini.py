"""`gemini/<model>`: Google's Gemini API (`GEMINI_API_KEY` or key file; `GEMINI_BASE_URL` for a compatible server).

The official SDK makes the calls. Its own retries, tool loop and continuations are off, so that one call is one request
with the whole conversation. Gemini accepts only turns of `user` and `model`, where tool results belong to the user. It
requires the thoughts of its models, an opaque signature on a part, in later requests. `extra["gemini"]` of messages and
tool calls stores the signatures.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from agentlab.core import errors
from agentlab.core.messages import Completion, FinishReason, Message, Request, ToolCall, Usage
from agentlab.core.protocols import Emit
from agentlab.models.chat_reading import plain_name, read_call
from agentlab.models.gemini_calls import AS_TEXT, joined_calls, repair_events
from agentlab.models.keys import KeyRing, server_and_keys, server_identity
from agentlab.models.provider import Provider, sum_usage, unreadable, wired_tools
from agentlab.models.refusals import lost_connection, read_refusal

if TYPE_CHECKING:
    from google.genai import Client

_HOME = "https://generativelanguage.googleapis.com"
_OPENING = {"role": "user", "parts": [{"text": "Begin."}]}
"""First message where a conversation is empty or opens with a call of the model, because Gemini rejects both."""
_CALL = "call"
_MALFORMED, _UNEXPECTED = "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"
_ASKED_AGAIN = (
    "Your function call could not be read ({}). Call one of the declared functions with valid arguments, or answer in"
    " words."
)
_WANTS_SIGNATURES = re.compile(r"(models/)?gemini-[3-9]")
"""Models that refuse a turn whose first call has no signature."""
_THINKS = re.compile(r"(models/)?gemini-(2\.5|[3-9])")
_FINISH: dict[str, FinishReason] = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
_FILTERED = re.compile("SAFETY|RECITATION|LANGUAGE|BLOCKLIST|PROHIBITED|SPII|ESCALATION|ARMOR|PUP_LIMITED")


def identity(name: str) -> tuple[str, str]:
    return server_identity("gemini", name)


def connect(
    name: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 120.0
) -> GeminiModel:
    """Return the model `name` on Google's server or that of `GEMINI_BASE_URL`; raises ConfigError without key or SDK.

    `timeout` is in seconds, for one attempt.
    """
    with errors.needs("the model provider gemini", "gemini"):
        import google.genai  # noqa: F401 (a lab learns here that it is missing, not at its first call)
    # Without our variable, the SDK's own one is used.
    variable = "GEMINI_API_KEY" if os.environ.get("GEMINI_API_KEY") else "GOOGLE_API_KEY"
    address, keys = server_and_keys("gemini", variable, base_url, api_key)
    # The name becomes part of the address.
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", name, re.ASCII) or ".." in name:
        raise errors.ConfigError(f"'gemini/{name}' is not the name of a model; 'gemini/gemini-2.5-flash' is one")
    return GeminiModel(name, base_url=address, keys=keys, timeout=timeout)


@dataclass
class StreamedContents:
    """Collects the chunks of one response."""

    model: str
    parts: list[Any] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None
    blocked: str = ""
    """Reason for which the prompt was rejected."""

    @property
    def failed_call(self) -> str:
        """Return the problem of the model's function call, "" if there is none. The SDK drops the server's message."""
        names = [str(part.function_call.name) for part in self.parts if part.function_call is not None]
        failed = self.finish == _UNEXPECTED or (self.finish == _MALFORMED and not names)
        return f"{self.finish}{f': {names[0]}' if names else ''}" if failed else ""


class GeminiModel(Provider[dict[str, Any], StreamedContents]):
    """Model behind Gemini's generateContent; `timeout` is in seconds, for the whole response."""

    is_rate_limited = True

    def __init__(self, model: str, *, base_url: str | None, keys: KeyRing, timeout: float = 120.0) -> None:
        self.name = f"gemini/{model}"
        self._model, self._base_url, self._keys, self.timeout = model, base_url, keys, timeout
        self._client: Client | None = None
        self.thinks = bool(_THINKS.match(model))
        self._wants_signatures = bool(_WANTS_SIGNATURES.match(model))

    def _connected(self) -> Client:
        if self._client is None:
            from google.genai import Client, types

            # Without service, address and version the SDK would read them from its own environment variables.
            # Without the option the SDK itself retries a failed connection after some seconds.
            options = types.HttpOptions(
                base_url=self._base_url or _HOME,
                api_version="v1beta",
                timeout=int((self.timeout or 0.0) * 1000),
                retry_options=types.HttpRetryOptions(attempts=1),
                async_client_args={"middlewares": (repair_events,)},
            )
            self._client = Client(vertexai=False, api_key="none", http_options=options)
        return self._client

    def translate(self, request: Request) -> dict[str, Any]:
        names = wired_tools(request)
        # Gemini rejects a turn without parts; an empty message would be one.
        messages = [m for m in request.messages if m.text or m.role == "tool" or _model_parts(m, names, ())]
        system = list(itertools.takewhile(lambda message: message.role == "system", messages))
        config = _config(request, system, names, self.output_limit(request))
        return {"contents": self._contents(messages[len(system) :], names), "config": config}

    def _contents(self, messages: Sequence[Message], names: Mapping[str, str]) -> list[dict[str, Any]]:
        contents: list[dict[str, Any]] = []
        calls: dict[str | None, ToolCall] = {}
        as_text: set[str] = set()
        for by_model, turn in itertools.groupby(messages, key=lambda message: message.role == "agent"):
            group = list(turn)
            if by_model:
                calls = {call.id: call for message in group for call in message.tool_calls}
                as_text = {call_id for message in group for call_id in self._calls_as_text(message)}
                parts = [part for message in group for part in _model_parts(message, names, as_text)]
            else:
                # Results first, in the order of their calls: Gemini assigns results without an id by position.
                order = list(calls)
                group.sort(key=lambda m: order.index(m.tool_call_id) if m.tool_call_id in order else len(order))
                callers = {call_id: call for call_id, call in calls.items() if call_id not in as_text}
                parts = [
                    {"text": f"{message.name or 'The call'} gave: {message.text}"}
                    if message.tool_call_id in as_text
                    else self._user_part(message, callers.get(message.tool_call_id), names)
                    for message in group
                ]
            contents.append({"role": "model" if by_model else "user", "parts": parts})
        return contents if contents and contents[0]["role"] == "user" else [_OPENING, *contents]

    def _calls_as_text(self, message: Message) -> list[str]:
        """Return the ids of calls that the server rejects: those without a name, and unsigned ones of other providers.

        Gemini signs only the first of parallel calls, so one signature is enough for all.
        """
        is_signed = any("signature" in _provider_data(call) for call in message.tool_calls)
        refuses = self._wants_signatures and not is_signed
        return [call.id for call in message.tool_calls if refuses or not call.name]

    def _user_part(self, message: Message, call: ToolCall | None, names: Mapping[str, str]) -> dict[str, Any]:
        if message.role != "tool":
            return {"text": message.text}
        own_id = call.id if call and _provider_data(call).get("id") else ""
        return self.format_tool_result(own_id, names[call.name] if call else message.name or "", message.text)

    def format_tool_result(self, call_id: str, name: str, result: str) -> dict[str, Any]:
        """Return a part of the user's turn; `call_id` is "" if the API gave the call no id."""
        response = {"error" if result.startswith("Error:") else "result": result}
        return {"function_response": ({"id": call_id} if call_id else {}) | {"name": name, "response": response}}

    async def call(self, wired: dict[str, Any], emit: Emit) -> StreamedContents:
        read = await self._read(wired, emit)
        if read.failed_call:
            *before, last = wired["contents"]
            repeated = {**last, "parts": [*last["parts"], {"text": _ASKED_AGAIN.format(read.failed_call)}]}
            first, read = read, await self._read({**wired, "contents": [*before, repeated]}, emit)
            read.usage = sum_usage(first.usage, read.usage)
        return read

    async def _read(self, wired: dict[str, Any], emit: Emit) -> StreamedContents:
        read = StreamedContents(self._model)
        async with aclosing(self._chunks(wired)) as chunks:
            async for chunk in chunks:
                read.model = chunk.model_version or read.model
                read.usage = read_usage(chunk.usage_metadata) if chunk.usage_metadata else read.usage
                if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
                    read.blocked = chunk.prompt_feedback.block_reason.value
                for candidate in (chunk.candidates or ())[:1]:
                    read.finish = candidate.finish_reason.value if candidate.finish_reason else read.finish
                    for part in (candidate.content and candidate.content.parts) or ():
                        read.parts.append(part)
                        if part.text and not part.thought:
                            emit(part.text)
        return read

    async def _chunks(self, wired: dict[str, Any]) -> AsyncGenerator[Any, None]:
        from google.genai import types

        key = self._keys.next_key()
        try:
            contents: Any = [types.Content.model_validate(content) for content in wired["contents"]]
            # No compression: the size of a compressed response is unknown until it is unpacked.
            options = types.HttpOptions(headers={"x-goog-api-key": key, "Accept-Encoding": "identity"})
            config = types.GenerateContentConfig(http_options=options, **wired["config"])
            models = self._connected().aio.models
            stream: Any = await models.generate_content_stream(model=self._model, contents=contents, config=config)
            async with aclosing(stream):
                async for chunk in stream:
                    yield chunk
            return
        except Exception as problem:  # the SDK raises errors of many types for an invalid response
            error = translate_error(problem, self.name, self._keys)
        # Raise outside `except`, without cause and context: servers quote the rejected key, and a log would print it.
        raise self._keys.report_failure(key, error)

    def parse(self, raw: StreamedContents, request: Request) -> Completion:
        reason = raw.finish or raw.blocked
        if not reason:
            raise errors.Unreachable("the stream ended before the answer did", self.name)
        if raw.failed_call:
            raise errors.ModelError(f"the model's function call cannot be read: {raw.failed_call}", self.name)
        ours = {wired: name for name, wired in wired_tools(request).items()}
        call_ids = [call.id for message in request.messages for call in message.tool_calls]
        message = read_message(raw.parts, ours, call_ids)
        finish = "content_filter" if raw.blocked or _FILTERED.search(reason) else _FINISH.get(reason)
        if message.tool_calls:
            finish = "tool_calls"
        elif finish is None and not message.text:
            raise errors.ServerFault(f"the model stopped without an answer: {reason}", self.name)
        thought = "".join(part.text for part in raw.parts if part.thought and part.text)
        return Completion(
            message=message,
            usage=raw.usage,
            model=raw.model,
            finish_reason=finish or "other",
            thought=thought,
            stopped=f"the server stopped the reply: {reason}" if finish in ("content_filter", None) else "",
        )

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aio.aclose()
            client.close()


def _config(request: Request, system: Sequence[Message], names: Mapping[str, str], limit: int | None) -> dict[str, Any]:
    # One call is one request, counted as one.
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}, "automatic_continuation": False}
    if system:
        config["system_instruction"] = {"parts": [{"text": message.text} for message in system]}
    if request.tools:
        declared = [
            {"name": names[tool.name], "description": tool.description, "parameters_json_schema": tool.parameters}
            for tool in request.tools
        ]
        # With `none` they are declared as well: a request that begins like the one before is cheaper.
        choice: dict[str, Any] = {"mode": {"auto": "AUTO", "none": "NONE"}.get(request.tool_choice, "ANY")}
        if request.tool_choice not in ("auto", "none", "required"):
            choice["allowed_function_names"] = [names.get(request.tool_choice, request.tool_choice)]
        config |= {"tools": [{"function_declarations": declared}], "tool_config": {"function_calling_config": choice}}
    if request.output_schema is not None:
        config |= {"response_mime_type": "application/json", "response_json_schema": request.output_schema}
    limits = {"temperature": request.temperature, "seed": request.seed, "max_output_tokens": limit}
    return config | {key: value for key, value in limits.items() if value is not None}


def _provider_data(holder: Message | ToolCall) -> dict[str, Any]:
    """Return the data of a message or call that `read_message` stored for later requests."""
    return holder.extra.get("gemini") or {}


def _model_parts(message: Message, names: Mapping[str, str], as_text: Collection[str]) -> list[dict[str, Any]]:
    """Return the parts of a model's turn as Gemini sent them; for any other turn its text, then its calls.

    Calls in `as_text` are described in words.
    """
    calls: list[dict[str, Any]] = []
    for call in message.tool_calls:
        if call.id in as_text:
            calls.append(
                {"text": f"I call {call.name or 'a function'}: {call.malformed or json.dumps(call.arguments)}"}
            )
            continue
        arguments = call.arguments if call.malformed is None else {"malformed": call.malformed}
        own_id = {"id": call.id} if _provider_data(call).get("id") else {}
        signed = {"thought_signature": _provider_data(call)["signature"]} if "signature" in _provider_data(call) else {}
        calls.append({"function_call": own_id | {"name": names[call.name], "args": arguments}, **signed})
    layout = _provider_data(message).get("parts", [])
    if "".join(part["text"] for part in layout if part != _CALL) != message.text or layout.count(_CALL) != len(calls):
        return [*([{"text": message.text}] if message.text else []), *calls]
    rest = iter(calls)
    return [next(rest) if part == _CALL else part for part in layout]


def read_message(parts: Iterable[Any], tool_names: Mapping[str, str], call_ids: Sequence[str]) -> Message:
    """Return the message without its thoughts; `call_ids` are the ids of earlier calls, which are not used again."""
    layout: list[Any] = []
    calls: list[ToolCall] = []
    for part in joined_calls(parts):
        signature = base64.b64encode(part.thought_signature or b"").decode()
        if part.function_call is not None:
            name, given, arguments = part.function_call.name or "", part.function_call.id, part.function_call.args
            used_ids = [*call_ids, *(call.id for call in calls)]
            own_id = {"id": True} if given and given not in used_ids else {}
            extra = own_id | ({"signature": signature} if signature else {})
            numbered = (f"call_{number}" for number in itertools.count(len(used_ids) + 1))
            call_id = given if own_id else next(made for made in numbered if made not in used_ids)
            tool = tool_names.get(name) or tool_names.get(plain_name(name)) or name
            made = ToolCall(id=call_id, name=tool, arguments=arguments or {})
            if (own := made.arguments.get(AS_TEXT)) is not None:
                made = read_call(call_id, tool, own if isinstance(own, str) else json.dumps(own))
            calls.append(replace(made, extra={"gemini": extra}) if extra else made)
            layout.append(_CALL)
        elif not part.thought and (part.text or signature):
            if signature or not layout or layout[-1] == _CALL or "thought_signature" in layout[-1]:
                layout.append({"text": ""} | ({"thought_signature": signature} if signature else {}))
            layout[-1]["text"] += part.text or ""
    text = "".join(part["text"] for part in layout if part != _CALL)
    plain = layout == [*([{"text": text}] if text else []), *(_CALL for _ in calls)]
    extra_parts = {} if plain else {"gemini": {"parts": layout}}
    return Message(role="agent", text=text, tool_calls=tuple(calls), extra=extra_parts)


def read_usage(usage: Any) -> Usage:
    """Return the usage; Gemini counts thoughts and input of its own tools separately, and omits a count of 0."""
    prompt, reply, thoughts = usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count
    return Usage(
        input_tokens=None if prompt is None else prompt + (usage.tool_use_prompt_token_count or 0),
        output_tokens=None if reply is None and thoughts is None else (reply or 0) + (thoughts or 0),
        cached_tokens=usage.cached_content_token_count,
        reasoning_tokens=thoughts,
    )


def translate_error(problem: Exception, model: str, keys: KeyRing) -> errors.ModelError:
    """Return our error for an error of the SDK: the server's message, shortened and without keys."""
    import aiohttp
    from google.genai.errors import APIError

    if isinstance(problem, (aiohttp.ClientError, OSError)):  # a TimeoutError is an OSError, too
        return lost_connection(problem, model, keys.redact)
    if not isinstance(problem, APIError) or not isinstance(problem.code, int):
        return unreadable(problem, model)
    headers = getattr(problem.response, "headers", {})
    return read_refusal(problem.code, headers, json.dumps(problem.details), model, keys.redact)
