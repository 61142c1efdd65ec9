"""The way to a server that speaks OpenAI's protocols, as chat models and embedders both take it.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    row = await connection.ask("openai/e", "embeddings", {"model": "e", "input": ["offside"]}, read)

The official SDK carries the call, so that what its documentation says of the environment holds: address, organisation,
project, headers, proxies, certificates. The answer comes as the bytes of the server, read by the adapter that knows
what they mean: the SDK's own reading costs more than all the rest of a run. Nothing is tried twice here: the queue
before every model and embedder repeats a call that may succeed later, with the next of several keys.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from agentlab.core.errors import BadRequest, ModelError
from agentlab.models.chat_parameters import refused_parameter
from agentlab.models.keys import KeyRing
from agentlab.models.refusals import read_refusal, read_server_error
from agentlab.wire.limits import CURRENT

if TYPE_CHECKING:
    import openai

Answered = TypeVar("Answered")
SILENCE_SECONDS = 120.0
LINGERING_SECONDS = 0.05
_CONTENT = {"chat.completions": "messages", "embeddings": "input"}
"""Parts of the SDK by endpoint."""
_key: ContextVar[str] = ContextVar("key")
"""The key of the call that is made here."""


async def _current_key() -> str:
    return _key.get()


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for any silence.

    The caller limits the time of a whole answer.
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
        """Return the result of `read` for the bytes of the server's answer; failures raise a ModelError of `model`.

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
            text = response.content.decode("utf-8", "replace")
            error = read_refusal(response.status_code, response.headers, text, model, self.keys.redact, self.base_url)
            if isinstance(error, BadRequest):
                error.parameter = refused_parameter(response.status_code, text, body)
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

    def server_error(self, text: Any, model: str) -> ModelError:
        """The error that the server reports in place of an answer, or in the middle of one."""
        return read_server_error(text, model, self.keys.redact, self.base_url)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
