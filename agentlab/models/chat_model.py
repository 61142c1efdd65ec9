"""Model behind OpenAI's chat completions, on any server: sends requests, repeats them, and reads replies."""

from __future__ import annotations

import re
from typing import Any

from agentlab.core.errors import BadRequest, ModelError
from agentlab.core.messages import Completion, Request
from agentlab.core.protocols import Emit
from agentlab.models.chat_parameters import Parameters
from agentlab.models.chat_reading import ChatReader
from agentlab.models.chat_writing import wire_id, write_messages, write_tools
from agentlab.models.openai_connection import STREAMED, Connection, read_pieces
from agentlab.models.provider import Provider, wired_tools
from agentlab.models.refusals import read_server_error

_THINKS = re.compile(r"(^|/)(o[1-9]|gpt-[5-9])")


class ChatModel(Provider[dict[str, Any], ChatReader]):
    """A chat model behind the chat-completions protocol; one time limit holds for a response and for a silence."""

    is_rate_limited = True

    def __init__(self, provider: str, model: str, connection: Connection) -> None:
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

    async def call(self, wired: dict[str, Any], emit: Emit) -> ChatReader:
        """Repeat the request without a parameter that the model rejects, or with another one instead."""
        while True:
            body = self._parameters.fit(wired)
            try:
                async with (
                    self._connection.open(self.name, body) as client,
                    read_pieces(await client.post("/chat/completions", body=body, **STREAMED)) as pieces,
                ):
                    read, piece = ChatReader(self._model, self._read_error), b" "
                    while piece and not read.is_done:
                        piece = await anext(pieces, b"")
                        if text := read.feed(piece):
                            emit(text)
                    return read
            except BadRequest as refusal:
                if not refusal.parameter:
                    raise
                self._parameters.learn(refusal, body)

    def _read_error(self, error: Any) -> ModelError:
        return read_server_error(error, self.name, self._connection.keys.redact, self._connection.base_url)

    def parse(self, raw: ChatReader, request: Request) -> Completion:
        return raw.completion({wired: name for name, wired in wired_tools(request).items()})

    def format_tool_result(self, call_id: str, name: str, result: str) -> dict[str, Any]:
        return {"role": "tool", "content": result, "tool_call_id": wire_id(call_id)}

    async def close(self) -> None:
        await self._connection.close()
