"""Connection to a server with OpenAI's protocols, for chat models and embedders.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    async with (
        connection.open("openai/e", body) as client,
        read_pieces(await client.post("/embeddings", body=body, **STREAMED)) as pieces,
    ):
        row = b"".join([piece async for piece in pieces])

The official SDK carries the call, so its documentation applies to address, organisation, project, headers, proxies and
certificates. The adapter reads the bytes of a response: the typed reading of the SDK costs more than the rest of a run.
The queue before every model and embedder repeats a call that may succeed later, with the next of several keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import openai

from agentlab.core.errors import BadRequest, ConfigError, ModelError, ServerFault, UnreadableAnswer
from agentlab.models.chat_parameters import refused_parameter
from agentlab.models.keys import KeyRing, load_keys, server_and_keys
from agentlab.models.refusals import lost_connection, read_refusal
from agentlab.wire.limits import CURRENT

SILENCE_SECONDS = 120.0
LINGERING_SECONDS = 0.05
MAX_BYTES = 64 * 2**20
"""Maximum size of one response, with everything around its text."""
MAX_ERROR_BYTES = 65_536
"""Bytes of a refusal that are read."""
STREAMED: Any = {"cast_to": httpx2.Response, "stream": True, "stream_cls": openai.AsyncStream}
"""Options of a post whose response is read in pieces; the methods of the SDK check a body field by field."""
KEY, TOKEN = "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for any silence.

    The caller limits the time of a whole response.
    """

    def __init__(self, base_url: str | None, keys: KeyRing, timeout: float) -> None:
        self.base_url, self.keys, self.timeout = base_url, keys, timeout
        self._http: httpx2.AsyncClient | None = None
        self._clients: dict[str, openai.AsyncOpenAI] = {}

    @contextlib.asynccontextmanager
    async def open(self, model: str, body: Mapping[str, Any]) -> AsyncIterator[openai.AsyncOpenAI]:
        """Yield the SDK's client with the next key, to post `body`; raise a failure as a ModelError of `model`.

        No text, cause or context of the error contains a key.
        """
        ticket = CURRENT.get()
        key = self.keys.next_key(ticket.remaining_share if ticket else None)
        if ticket is not None:
            ticket.mark_sent(key)
        try:
            yield self.client(key)
            return
        except openai.APIStatusError as problem:
            response = problem.response
            text = response.content.decode("utf-8", "replace")
            error = read_refusal(response.status_code, response.headers, text, model, self.keys.redact, self.base_url)
        except (openai.APIConnectionError, httpx2.HTTPError, aiohttp.ClientError) as problem:
            error = lost_connection(problem, model, self.keys.redact)
        except ModelError as problem:
            text = str(problem)
            error = problem if problem.model else type(problem)(self.keys.redact(text), model)
        if isinstance(error, BadRequest):
            error.parameter = refused_parameter(text, body)
        failure = self.keys.report_failure(key, error)
        try:
            raise failure
        finally:
            # Servers quote the key that they refuse, and a log would print it with the context of the failure.
            failure.__context__ = None

    def client(self, key: str) -> openai.AsyncOpenAI:
        """Return the SDK's client for a key; all keys share connections, which belong to the running event loop."""
        if self._http is None:
            self._http = openai.DefaultAioHttpClient(
                # The rate limiter bounds the calls in flight; 0 means no limit to this transport.
                limits=httpx2.Limits(max_connections=0),
                timeout=httpx2.Timeout(min(self.timeout, SILENCE_SECONDS), pool=None),
                event_hooks={"response": [_check_head]},
            )
        if key not in self._clients:
            headers = {"Accept-Encoding": "identity"}
            self._clients[key] = self.connect(key, http_client=self._http, max_retries=0, default_headers=headers)
        return self._clients[key]

    def connect(self, key: str, **options: Any) -> openai.AsyncOpenAI:
        parts = urlsplit(self.base_url or "")
        # Every call sends the query of the address: some gateways take their version there.
        base, query = parts._replace(query="").geturl() or None, dict(parse_qsl(parts.query))
        return openai.AsyncOpenAI(api_key=key, base_url=base, default_query=query, **options)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None
            self._clients.clear()


class AzureConnection(Connection):
    """One resource and its keys or token; the SDK puts the deployment into the address."""

    def connect(self, key: str, **options: Any) -> openai.AsyncAzureOpenAI:
        credential: Any = {"azure_ad_token" if os.environ.get(TOKEN) else "api_key": key}
        return openai.AsyncAzureOpenAI(azure_endpoint=self.base_url or "", **credential, **options)


def azure_connection(timeout: float) -> AzureConnection:
    """Return the connection to the resource that the environment names; raises ConfigError for what it lacks.

    The resource needs `AZURE_OPENAI_ENDPOINT`, `OPENAI_API_VERSION`, and `AZURE_OPENAI_API_KEY` (or several keys of
    `azure` in the key file) or `AZURE_OPENAI_AD_TOKEN`.
    """
    token = os.environ.get(TOKEN)
    lacking = [name for name in ("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION") if not os.environ.get(name)]
    lacking += [] if token or load_keys("azure", KEY) else [KEY]
    if lacking:
        raise ConfigError(f"azure needs {' and '.join(lacking)}: the portal shows it beside the resource")
    return AzureConnection(*server_and_keys("azure", KEY, os.environ["AZURE_OPENAI_ENDPOINT"], token), timeout)


async def _check_head(response: httpx2.Response) -> None:
    """Report the limits in the headers of a response; raises ModelError for a response that must not be read."""
    if (ticket := CURRENT.get()) is not None:
        ticket.observe_headers(response.headers)
    if response.has_redirect_location:
        target, url = response.url.join(response.headers["location"]), response.url
        if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
            origin = target.copy_with(path="/", query=None, fragment=None)
            raise ModelError(f"the server redirects to {origin}; set that address, if you trust it")
    # The request excludes compression, because the unpacked size of a response is unknown.
    elif response.headers.get("content-encoding", "identity") != "identity":
        raise UnreadableAnswer("the server compresses its answers, although the request rules that out")
    elif response.is_error:
        body: Any = response.stream
        text = b""
        async for piece in body:
            text += piece
            if len(text) > MAX_ERROR_BYTES:
                break  # the first words of a refusal suffice
        await body.aclose()
        response.stream = httpx2.ByteStream(text)


@contextlib.asynccontextmanager
async def read_pieces(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the pieces of a response, at most `MAX_BYTES` together, and close it after the block."""
    async with contextlib.aclosing(response):
        pieces = _limited(response.stream)
        yield pieces
        # A connection whose response is read to its end is used again; the end may come a moment later.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGERING_SECONDS):
                async for _ in pieces:
                    pass


async def _limited(body: Any) -> AsyncIterator[bytes]:
    size = 0
    async for piece in body:
        size += len(piece)
        if size > MAX_BYTES:
            raise ServerFault(f"the server sent more than {MAX_BYTES} bytes")
        yield piece
