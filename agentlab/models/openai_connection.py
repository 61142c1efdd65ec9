"""Connection to a server with OpenAI's protocols, for chat models and embedders.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    row = await connection.ask("openai/e", "/embeddings", {"model": "e", "input": ["offside"]}, read)

The official SDK carries the call, so its documentation applies to address, organisation, project, headers, proxies and
certificates. The adapter reads the bytes of the answer: the typed reading of the SDK costs more than the rest of a run.
The queue before every model and embedder repeats a call that may succeed later, with the next of several keys.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from agentlab.core.errors import BadRequest, ModelError
from agentlab.models.chat_parameters import refused_parameter
from agentlab.models.keys import KeyRing
from agentlab.models.refusals import lost_connection, read_refusal, read_server_error
from agentlab.wire.limits import CURRENT

if TYPE_CHECKING:
    import httpx2
    import openai

Answered = TypeVar("Answered")
SILENCE_SECONDS = 120.0
LINGERING_SECONDS = 0.05


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for any silence.

    The caller limits the time of a whole answer.
    """

    def __init__(self, base_url: str | None, keys: KeyRing, timeout: float) -> None:
        self.base_url, self.keys, self.timeout = base_url, keys, timeout
        self._http: httpx2.AsyncClient | None = None
        self._clients: dict[str, openai.AsyncOpenAI] = {}

    async def ask(
        self,
        model: str,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[AsyncIterator[bytes]], Awaitable[Answered]],
    ) -> Answered:
        """Return the result of `read` for the bytes of the server's answer; failures raise a ModelError of `model`.

        `path` is `/chat/completions` or `/embeddings`. Raises what `read` raises over an unreadable answer, too.
        """
        import aiohttp
        import httpx2
        import openai

        ticket = CURRENT.get()
        key = self.keys.next_key(ticket.remaining_share if ticket else None)
        if ticket is not None:
            ticket.mark_sent(key)
        try:
            # The methods of the SDK check a body field by field, which costs as much as a tenth of a call.
            post: Any = self.client(key).post
            response = await post(path, cast_to=httpx2.Response, body=body, stream=True, stream_cls=openai.AsyncStream)
            async with contextlib.aclosing(response):
                pieces = aiter(response.stream)
                answered = await read(pieces)
                # A connection whose answer is read to its end is used again; the end may come a moment later.
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

    def client(self, key: str) -> openai.AsyncOpenAI:
        """Return the SDK's client for a key; all keys share connections, which belong to the running event loop."""
        if key not in self._clients:
            import httpx2

            from agentlab.models.bounded_http import http_client

            self._http = self._http or http_client()
            self._clients[key] = self.connect(
                key,
                http_client=self._http,
                max_retries=0,
                timeout=httpx2.Timeout(min(self.timeout, SILENCE_SECONDS), pool=None),
                default_headers={"Accept-Encoding": "identity"},
            )
        return self._clients[key]

    def connect(self, key: str, **options: Any) -> openai.AsyncOpenAI:
        import openai

        parts = urlsplit(self.base_url or "")
        # Every call sends the query of the address: some gateways take their version there.
        base, query = parts._replace(query="").geturl() or None, dict(parse_qsl(parts.query))
        return openai.AsyncOpenAI(api_key=key, base_url=base, default_query=query, **options)

    def server_error(self, text: Any, model: str) -> ModelError:
        """Return the error that the server reports in place of an answer, or in the middle of one."""
        return read_server_error(text, model, self.keys.redact, self.base_url)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None
            self._clients.clear()
