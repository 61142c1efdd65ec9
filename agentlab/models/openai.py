"""`openai/<model>`: any server with OpenAI's chat completions (`OPENAI_BASE_URL`, `OPENAI_API_KEY` or key file)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import Unreachable
from agentlab.core.messages import Completion, FinishReason, Message, Request, ToolCall, Usage
from agentlab.core.protocols import Emit
from agentlab.core.strict_json import parse_json
from agentlab.models.keys import KeyRing, server_and_keys, server_identity
from agentlab.models.openai_connection import Connection
from agentlab.models.provider import Provider, wired_tools

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
    return server_identity("openai", name)


def connect(
    name: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 600.0
) -> OpenAIModel:
    """The model `name` on the server given by `OPENAI_BASE_URL`, or OpenAI's own; raises ConfigError without a key.

    `timeout` is in seconds, for a whole answer; two minutes of silence end it, too.
    """
    address, keys = server_and_keys("openai", "OPENAI_API_KEY", base_url, api_key)
    return OpenAIModel(name, base_url=address, keys=keys, timeout=timeout)


@dataclass
class StreamedChat:
    """What the chunks of an answer add up to."""

    model: str
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None


class OpenAIModel(Provider[dict[str, Any], StreamedChat]):
    """A chat model behind the chat-completions protocol; `timeout` is in seconds, for the whole answer."""

    def __init__(self, model: str, *, base_url: str | None, keys: KeyRing, timeout: float = 600.0) -> None:
        self.name = f"openai/{model}"
        self.timeout = timeout
        self._model = model
        self._connection = Connection(base_url, keys, timeout)

    def translate(self, request: Request) -> dict[str, Any]:
        names = wired_tools(request)
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
        limit = "max_completion_tokens" if self._connection.base_url is None else "max_tokens"
        for key, value in (("temperature", request.temperature), ("seed", request.seed), (limit, request.max_tokens)):
            if value is not None:
                body[key] = value
        return body

    async def call(self, wired: dict[str, Any], emit: Emit) -> StreamedChat:
        return await self._connection.ask(self.name, lambda client: self._read(client, wired, emit))

    async def _read(self, client: AsyncOpenAI, wired: dict[str, Any], emit: Emit) -> StreamedChat:
        read = StreamedChat(self._model)
        async with await client.chat.completions.create(**wired) as stream:
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

    def parse(self, raw: StreamedChat, request: Request) -> Completion:
        if raw.finish is None:
            raise Unreachable("the stream ended before the answer did", self.name)
        ours = {wired: name for name, wired in wired_tools(request).items()}
        made = tuple(
            read_call(call["id"] or f"call_{index}", ours.get(call["name"], call["name"]), call["arguments"])
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
        await self._connection.close()


def read_call(call_id: str, name: str, arguments: str) -> ToolCall:
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return ToolCall(id=call_id, name=name, malformed=arguments)
    return ToolCall(id=call_id, name=name, arguments=parsed)


def read_usage(usage: Any) -> Usage:
    """The counts as they were sent; what of them cannot be is left out further up."""
    prompt, output = (getattr(usage, f"{of}_tokens_details", None) for of in ("prompt", "completion"))
    return Usage(
        input_tokens=getattr(usage, "prompt_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        cached_tokens=getattr(prompt, "cached_tokens", None),
        reasoning_tokens=getattr(output, "reasoning_tokens", None),
    )
