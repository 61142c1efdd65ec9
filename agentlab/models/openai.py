"""`openai/<model>`: any server that speaks OpenAI's chat completions (`OPENAI_BASE_URL`, `OPENAI_API_KEY` or key file).

The official SDK does the talking, on its aiohttp transport (six times faster than its default one with many calls in
flight) and with its own retries off: the session makes a call again that may go through later.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import (
    BadRequest,
    ContextOverflow,
    ModelError,
    RateLimited,
    Refused,
    ServerFault,
    Unreachable,
)
from agentlab.core.messages import Completion, FinishReason, Message, Request, ToolCall, Usage
from agentlab.core.protocols import Emit
from agentlab.models.keys import KeyRing, server_and_keys
from agentlab.models.provider import Provider
from agentlab.models.tool_names import wire_names

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_FINISH: dict[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def identity(name: str) -> tuple[str, str]:
    """What the model answers under, and the kind of server: OpenAI's own and a compatible one are told apart."""
    return f"openai/{name}", "compatible" if os.environ.get("OPENAI_BASE_URL") else "openai"


def connect(
    name: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 120.0
) -> OpenAIModel:
    """The model `name` on the server given by `OPENAI_BASE_URL`, or OpenAI's own; raises ConfigError without a key.

    `timeout` is in seconds, for one attempt.
    """
    address, keys = server_and_keys("openai", "OPENAI_API_KEY", base_url, api_key)
    return OpenAIModel(name, base_url=address, keys=keys, timeout=timeout)


@dataclass(frozen=True)
class _Wired:
    body: dict[str, Any]
    tool_names: dict[str, str]
    """Ours, by what the provider is told."""


@dataclass
class _Streamed:
    """What the chunks of an answer add up to."""

    tool_names: Mapping[str, str]
    model: str
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None


class OpenAIModel(Provider[_Wired, _Streamed]):
    """A chat model behind the chat-completions protocol; `timeout` is in seconds, for the whole answer."""

    def __init__(self, model: str, *, base_url: str | None, keys: KeyRing, timeout: float = 120.0) -> None:
        self.name = f"openai/{model}"
        self.parallel = None
        self._model = model
        self._base_url = base_url
        self._keys = keys
        self._timeout = timeout
        self._client: AsyncOpenAI | None = None

    def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            self._client = sdk_client(self._base_url, self._timeout)
        return self._client

    def translate(self, request: Request) -> _Wired:
        called = (call.name for message in request.messages for call in message.tool_calls)
        names = wire_names([*(tool.name for tool in request.tools), *called])
        return _Wired(self._body(request, names), {wire: name for name, wire in names.items()})

    async def call(self, wired: _Wired, emit: Emit) -> _Streamed:
        import httpx2
        import openai

        key = self._keys.take()
        try:
            client = self._connected().with_options(api_key=key)
            stream = await client.chat.completions.create(**wired.body)
            return await self._read(stream, emit, wired.tool_names)
        except openai.APIError as problem:
            # Without its cause: servers quote the key they refuse, and a log would print it.
            raise self._keys.blame(key, translate_error(problem, self.name, self._keys)) from None
        except httpx2.HTTPError as problem:
            raise Unreachable(f"the connection broke: {type(problem).__name__}", self.name) from None
        except json.JSONDecodeError as problem:
            raise ServerFault(f"the server sent what is not JSON: {problem.msg}", self.name) from None

    def _body(self, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [self._message(message, names) for message in request.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools and request.tool_choice != "none":
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names[tool.name],
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
            named = {"type": "function", "function": {"name": names.get(request.tool_choice)}}
            body["tool_choice"] = request.tool_choice if request.tool_choice in ("auto", "required") else named
        if request.output_schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.output_schema, "strict": False},
            }
        # OpenAI's own reasoning models refuse `max_tokens`; many compatible servers know nothing else.
        limit = "max_completion_tokens" if self._base_url is None else "max_tokens"
        for key, value in (("temperature", request.temperature), ("seed", request.seed), (limit, request.max_tokens)):
            if value is not None:
                body[key] = value
        return body

    async def _read(self, stream: Any, emit: Emit, tool_names: Mapping[str, str]) -> _Streamed:
        read = _Streamed(tool_names, self._model)
        async with stream:
            async for chunk in stream:
                read.model = chunk.model or read.model
                if chunk.usage is not None:
                    read.usage = read_usage(chunk.usage)
                for choice in (chunk.choices or ())[:1]:
                    read.finish = choice.finish_reason or read.finish
                    if choice.delta.content:
                        read.text.append(choice.delta.content)
                        emit(choice.delta.content)
                    for part in choice.delta.tool_calls or ():
                        call = read.calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                        call["id"] = part.id or call["id"]
                        call["name"] += (part.function and part.function.name) or ""
                        call["arguments"] += (part.function and part.function.arguments) or ""
        return read

    def parse(self, raw: _Streamed) -> Completion:
        if raw.finish is None:
            raise Unreachable("the stream ended before the answer did", self.name)
        made = tuple(
            read_call(call["id"] or f"call_{index}", raw.tool_names.get(call["name"], call["name"]), call["arguments"])
            for index, call in sorted(raw.calls.items())
        )
        return Completion(
            message=Message(role="agent", text="".join(raw.text), tool_calls=made),
            usage=raw.usage,
            model=raw.model,
            finish_reason="tool_calls" if made else _FINISH.get(raw.finish, "stop"),
        )

    def format_tool_result(self, call_id: str, name: str, result: str) -> dict[str, Any]:
        return {"role": "tool", "content": result, "tool_call_id": call_id}

    def _message(self, message: Message, names: Mapping[str, str]) -> dict[str, Any]:
        if message.role == "tool":
            return self.format_tool_result(message.tool_call_id or "", message.name or "", message.text)
        wired: dict[str, Any] = {"role": _ROLES[message.role], "content": message.text}
        if message.tool_calls:
            wired["content"] = message.text or None
            wired["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": names.get(call.name, call.name),
                        "arguments": json.dumps(call.arguments) if call.malformed is None else call.malformed,
                    },
                }
                for call in message.tool_calls
            ]
        return wired

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


def sdk_client(base_url: str | None, timeout: float) -> AsyncOpenAI:
    """Without a key of its own: each call brings the one whose turn it is."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    return AsyncOpenAI(
        base_url=base_url, api_key="none", timeout=timeout, max_retries=0, http_client=DefaultAioHttpClient()
    )


def read_call(call_id: str, name: str, arguments: str) -> ToolCall:
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return ToolCall(id=call_id, name=name, malformed=arguments)
    return ToolCall(id=call_id, name=name, arguments=parsed)


def read_usage(usage: Any) -> Usage:
    prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=prompt.cached_tokens if prompt else None,
        reasoning_tokens=output.reasoning_tokens if output else None,
    )


def translate_error(problem: Any, model: str, keys: KeyRing) -> ModelError:
    """Our error for an exception of the SDK; the message keeps what the server said, shortened, never a key."""
    import openai

    said = keys.hide(" ".join(str(getattr(problem, "message", problem)).split()))
    said = re.sub(r"sk-[A-Za-z0-9_*-]{6,}", "<key>", said)[:300]
    # The aiohttp transport reports a refused connection as a time-out; its cause tells them apart.
    if isinstance(problem, openai.APITimeoutError) and "onnect" not in str(problem.__cause__):
        return Unreachable("no answer in time", model)
    if isinstance(problem, openai.APIConnectionError):
        return Unreachable(f"cannot reach the server: {said}", model)
    status = getattr(problem, "status_code", None)
    if status == 429 and getattr(problem, "code", None) != "insufficient_quota":
        try:
            retry_after = float(problem.response.headers.get("retry-after", ""))
        except ValueError:
            retry_after = None
        return RateLimited(said, model, retry_after)
    if status in (401, 402, 403, 429):
        return Refused(said, model)
    if status is not None and status >= 500:
        return ServerFault(f"HTTP {status}: {said}", model)
    overflow = ("context_length_exceeded", "exceed_context_size", "maximum context length", "context size")
    if status in (400, 413) and any(mark in f"{getattr(problem, 'code', '')} {said}" for mark in overflow):
        return ContextOverflow(said, model)
    if status is None:
        return ServerFault(said, model)
    return BadRequest(f"HTTP {status}: {said}", model)
