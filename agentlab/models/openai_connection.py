"""The way to a server that speaks OpenAI's protocols, as chat models and embedders both take it.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    row = await connection.ask("openai/e", "embeddings", {"model": "e", "input": ["offside"]}, read)

The official SDK carries the call, so that what its documentation says of the environment holds: address, organisation,
project, headers, proxies, certificates. The answer comes as the bytes of the server, read by whoever knows what they
mean: the SDK's own reading costs more than all the rest of a run. Nothing is tried twice here: the queue before every
model and embedder asks again, with the next of several keys, what may go through later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from agentlab.core.errors import BadRequest, ContextOverflow, ModelError, Refused, ServerFault
from agentlab.models.chat_parameters import refused_parameter
from agentlab.models.keys import KeyRing
from agentlab.models.provider import http_status_error
from agentlab.wire.limits import CURRENT, as_number

if TYPE_CHECKING:
    import openai

Answered = TypeVar("Answered")
SILENCE_SECONDS = 120.0
LINGERING_SECONDS = 0.05
_OVERFLOW = ("context_length_exceeded", "exceed_context_size", "maximum context length", "context size")
_CONTENT = {"chat.completions": "messages", "embeddings": "input"}
"""What else the SDK wants to be told apart, by endpoint."""
_key: ContextVar[str] = ContextVar("key")
"""The key of the call that is made here."""


async def _current_key() -> str:
    return _key.get()


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for any silence.

    How long a whole answer may take is up to whoever asks.
    """

    def __init__(self, base_url: str | None, keys: KeyRing, timeout: float) -> None:
        self.base_url = base_url
        self.keys = keys
        self.timeout = timeout
        self._client: openai.AsyncOpenAI | None = None

    async def ask(
        self,
        model: str,
        endpoint: str,
        body: Mapping[str, Any],
        read: Callable[[AsyncIterator[bytes]], Awaitable[Answered]],
    ) -> Answered:
        """What `read` makes of the bytes that the server answers; what goes wrong there is a ModelError of `model`.

        `endpoint` is the SDK's: `chat.completions` or `embeddings`. Raises what `read` raises over an answer that
        cannot be read, too.
        """
        import aiohttp
        import httpx2
        import openai

        from agentlab.models.bounded_http import lost_connection

        client, ticket = self.open(), CURRENT.get()
        key = self.keys.next_key(ticket.remaining_share if ticket else None)
        _key.set(key)
        if ticket is not None:
            ticket.mark_sent(key)
        try:
            create = attrgetter(endpoint)(client).with_streaming_response.create
            # As an extra body it goes out as it is; over the rest of its arguments the SDK walks word by word.
            async with create(model=body["model"], extra_body=body, **{_CONTENT[endpoint]: ()}) as response:
                pieces = response.iter_bytes()
                answered = await read(pieces)
                # A connection that was read to its end is used again; what should have ended gets a moment for it.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGERING_SECONDS):
                        async for _ in pieces:
                            pass
                return answered
        except openai.APIStatusError as problem:
            response = problem.response
            error = self._refusal(response.status_code, response.headers, response.content, model)
            if isinstance(error, BadRequest):
                told = response.content.decode("utf-8", "replace")
                error.parameter = refused_parameter(response.status_code, told, body)
        except (openai.APIConnectionError, httpx2.HTTPError, aiohttp.ClientError) as problem:
            error = lost_connection(problem, model, self.keys.redact)
        except ModelError as problem:
            error = problem if problem.model else type(problem)(self.keys.redact(str(problem)), model)
        # Out here it has neither cause nor context: servers quote the key they refuse, and a log would print it.
        raise self.keys.report_failure(key, error)

    def open(self) -> openai.AsyncOpenAI:
        """The SDK's client, made when it is first needed; it belongs to the event loop that runs."""
        if self._client is None:
            from agentlab.models.bounded_http import client_options

            self._client = self.connect(client_options(min(self.timeout, SILENCE_SECONDS), _current_key))
        return self._client

    def connect(self, options: Mapping[str, Any]) -> openai.AsyncOpenAI:
        from agentlab.models.bounded_http import openai_client

        return openai_client(self.base_url, **options)

    def _refusal(self, status: int, headers: Mapping[str, str], content: bytes, model: str) -> ModelError:
        """Our error for an answer with an HTTP status from 400 on."""
        text = content.decode("utf-8", "replace")
        told, code = parse_error(text)
        said = self.keys.redact(told)
        if status == 429 and code == "insufficient_quota":
            return Refused(said, model)
        if status in (400, 413) and any(mark in text for mark in _OVERFLOW):
            return ContextOverflow(said, model)
        return http_status_error(status, said, model, as_number(headers.get("retry-after")))

    def stream_error(self, told: Any, model: str) -> ModelError:
        """Our error for one that a server told in the middle of an answer."""
        said = told.get("message") if isinstance(told, dict) else told
        return ServerFault(self.keys.redact(str(said or "the server gave up in the middle of an answer")), model)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


def parse_error(text: str) -> tuple[str, Any]:
    """Message and code of an error as servers write it: `{"error": {"message", "code"}}`, its inside, or any text."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    said = said[0] if isinstance(said, list) and said else said
    error = said.get("error", said) if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return str(error), None
    return str(error.get("message") or error.get("detail") or text), error.get("code")


class SseParser:
    """Reads server-sent events out of the pieces of a body; of their fields only the data means something here."""

    def __init__(self) -> None:
        self.is_done = False
        """True once `[DONE]` was read."""
        self._unfinished: list[bytes] = []
        self._data: bytes | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that `piece` brings to their end; b"" says that nothing comes any more."""
        if piece[:5] == b"data:" and piece[-2:] == b"\n\n" and self._data is None and not any(self._unfinished):
            # Whole events of one line each, as nearly all pieces are.
            events = piece[5:-2].split(b"\n\ndata:")
            if piece.count(b"\n") == 2 * len(events):
                return self._until_done([event.strip() for event in events])
        if piece and b"\n" not in piece:
            # Put together once the line is whole: a server may take as many pieces over one as it likes.
            self._unfinished.append(piece)
            return []
        self._unfinished.append(piece or b"\n\n")
        *lines, rest = b"".join(self._unfinished).split(b"\n")
        self._unfinished = [rest]
        found = []
        for line in lines:
            if line[:5] == b"data:":
                told = line[5:].strip()
                self._data = told if self._data is None else b"%b\n%b" % (self._data, told)
            elif self._data is not None and line in (b"", b"\r"):
                found.append(self._data)
                self._data = None
        return self._until_done(found)

    def _until_done(self, events: list[bytes]) -> list[bytes]:
        if b"[DONE]" in events:
            self.is_done = True
            return events[: events.index(b"[DONE]")]
        return events
