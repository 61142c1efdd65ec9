"""`openai/<model>`: any server with OpenAI's chat completions (`OPENAI_BASE_URL`, `OPENAI_API_KEY` or key file)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from agentlab.core.errors import BadRequest, Unreachable
from agentlab.core.messages import Completion, FinishReason, Message, Request, ToolCall, Usage
from agentlab.core.protocols import Emit
from agentlab.core.strict_json import parse_json
from agentlab.models.chat_parameters import Parameters
from agentlab.models.chat_writing import wire_id, write_messages, write_tools
from agentlab.models.keys import server_and_keys, server_identity
from agentlab.models.openai_connection import Connection, SseParser
from agentlab.models.provider import Provider, read_usage, wired_tools

_THINKS = re.compile(r"(^|/)(o[1-9]|gpt-[5-9])")
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
    return OpenAIModel(name, Connection(address, keys, timeout))


class CallOfFunction(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class PartOfCall(Struct, gc=False):
    index: int = 0
    id: str | None = None
    function: CallOfFunction | None = None


class Delta(Struct, gc=False):
    content: str | None = None
    tool_calls: list[PartOfCall] | None = None


class Choice(Struct, gc=False):
    delta: Delta
    finish_reason: str | None = None


class Chunk(Struct, gc=False):
    """What is read of a piece of a streamed answer; whatever else stands in it is passed over."""

    choices: list[Choice] | None = None
    model: str | None = None
    usage: Any = None
    error: Any = None


@dataclass
class StreamedChat:
    """What the chunks of an answer add up to."""

    model: str
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None

    def add(self, chunk: Chunk, emit: Emit) -> None:
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        if choice.delta.content:
            self.text.append(choice.delta.content)
            emit(choice.delta.content)
        for part in choice.delta.tool_calls or ():
            call = self.calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] = part.id or call["id"]
            if part.function is not None:
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""


class OpenAIModel(Provider[dict[str, Any], StreamedChat]):
    """A chat model behind the chat-completions protocol; a whole answer may take as long as any silence."""

    is_rate_limited = True

    def __init__(self, model: str, connection: Connection, *, provider: str = "openai") -> None:
        self.name = f"{provider}/{model}"
        self.timeout = connection.timeout
        self._model = model
        self._connection = connection
        self._parameters = Parameters()
        self.thinks = bool(_THINKS.search(model))

    def translate(self, request: Request) -> dict[str, Any]:
        names = wired_tools(request)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": write_messages(request.messages, names),
            "stream": True,
            "stream_options": {"include_usage": True},
            **write_tools(request, names),
        }
        if request.output_schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.output_schema, "strict": False},
            }
        # OpenAI's own reasoning models refuse `max_tokens`; many compatible servers know nothing else.
        limit = "max_completion_tokens" if self._connection.base_url is None else "max_tokens"
        settings = {"temperature": request.temperature, "seed": request.seed, limit: self.output_limit(request)}
        return body | {name: value for name, value in settings.items() if value is not None}

    async def start(self) -> None:
        """Load what talks HTTP, which the first calls would otherwise do within their time."""
        self._connection.open()

    async def call(self, wired: dict[str, Any], emit: Emit) -> StreamedChat:
        """Ask once more without a parameter that the model does not take, or with another in its place."""
        while True:
            body = self._parameters.fit(wired)
            try:
                return await self._connection.ask(
                    self.name, "chat.completions", body, lambda pieces: self._read(pieces, emit)
                )
            except BadRequest as refusal:
                if not refusal.parameter:
                    raise
                self._parameters.learn(refusal, body)

    async def _read(self, pieces: AsyncIterator[bytes], emit: Emit) -> StreamedChat:
        read, events, piece = StreamedChat(self._model), SseParser(), b" "
        while piece and not events.is_done:
            piece = await anext(pieces, b"")
            said: list[str] = []
            try:
                for chunk in read_chunks(events.feed(piece)):
                    if chunk.error:
                        raise self._connection.stream_error(chunk.error, self.name)
                    read.add(chunk, said.append)
            finally:
                if said:  # what came together is handed on together
                    emit("".join(said))
        return read

    def parse(self, raw: StreamedChat, request: Request) -> Completion:
        if raw.finish is None:
            raise Unreachable("the stream ended before the answer did", self.name)
        ours = {wired: name for name, wired in wired_tools(request).items()} if raw.calls else {}
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
        return {"role": "tool", "content": result, "tool_call_id": wire_id(call_id)}

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


_chunks = msgspec.json.Decoder(list[Chunk])


def read_chunks(events: Sequence[bytes]) -> Iterable[Chunk]:
    """Raises ValueError for what is no chunk, once those before it were read."""
    try:
        # All that came together at once.
        found = _chunks.decode(b"[%b]" % b",".join(events))
    except ValueError:
        found = []
    # What msgspec refuses and servers send: NaN as a count, half a surrogate pair in a text.
    return found if len(found) == len(events) else (msgspec.convert(json.loads(data), Chunk) for data in events)
