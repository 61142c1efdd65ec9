"""Bounds for the official SDK's client: no answer past a size, none packed, and no way to another server.

It imports the SDK, which takes half a second: import it where a call is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import httpx2
import openai

from agentlab.core.errors import ModelError, ServerFault, Unreachable, UnreadableAnswer
from agentlab.wire.limits import CURRENT

MAX_BYTES = 64 * 2**20
"""Largest size of one answer, with everything around its text."""
MAX_ERROR_BYTES = 65_536
"""Bytes of a refusal that are read."""
MAX_REDIRECTS = 5
_BROKEN = {
    "ClientPayloadError": "the answer has no end",
    "ServerDisconnectedError": "the server hung up",
    "ClientOSError": "the server hung up",
}
_NO_HTTP = "what came is no answer in HTTP"


class BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer: ServerFault past `MAX_BYTES`; a refusal just ends, for its first words say why."""

    def __init__(self, response: httpx2.Response) -> None:
        self._body: Any = response.stream
        self._is_refusal = response.is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_BYTES:
                raise ServerFault(f"the server sent more than {MAX_BYTES} bytes")
            yield piece
            if self._is_refusal and size > MAX_ERROR_BYTES:
                return

    async def aclose(self) -> None:
        await self._body.aclose()


async def check_head(response: httpx2.Response) -> None:
    """Take up what the head of an answer says of limits; raises ModelError for one that nobody should read on."""
    if (ticket := CURRENT.get()) is not None:
        ticket.observe_headers(response.headers)
    if response.has_redirect_location:
        sent_to, url = response.url.join(response.headers["location"]), response.url
        if (sent_to.scheme, sent_to.host, sent_to.port) != (url.scheme, url.host, url.port):
            origin = sent_to.copy_with(path="/", query=None, fragment=None)
            raise ModelError(f"the server sends on to {origin}; ask that one, if you trust it")
    # It was not asked for, and what a packed answer grows to is known only once it has.
    elif response.headers.get("content-encoding", "identity") != "identity":
        raise UnreadableAnswer("the server packs its answers, though it was asked not to")
    response.stream = BoundedStream(response)


def client_options(idle_timeout: float, key: Callable[[], Awaitable[str]]) -> dict[str, Any]:
    """The options of every client; `key` names the key of the call at hand. The SDK tries nothing again."""
    return {
        "api_key": key,
        "max_retries": 0,
        "timeout": httpx2.Timeout(idle_timeout, pool=None),
        "default_headers": {"Accept-Encoding": "identity"},
        "http_client": openai.DefaultAioHttpClient(
            # The rate limiter bounds the calls in flight; 0 means no limit to this transport.
            limits=httpx2.Limits(max_connections=0),
            max_redirects=MAX_REDIRECTS,
            event_hooks={"response": [check_head]},
        ),
    }


def openai_client(address: str | None, **options: Any) -> openai.AsyncOpenAI:
    """The SDK's client, for the server at `address` or as the environment says."""
    parts = urlsplit(address or "")
    # Every call sends the query of the address: some gateways take their version there.
    base = parts._replace(query="").geturl() or None
    return openai.AsyncOpenAI(base_url=base, default_query=dict(parse_qsl(parts.query)), **options)


def lost_connection(problem: Exception, model: str, redact: Callable[[str], str]) -> ModelError:
    """Our error for a call that brought no answer at all, by what the transport says of it."""
    causes = list(_causes(problem))
    if any(isinstance(cause, httpx2.TooManyRedirects) for cause in causes):
        return ModelError(f"the server sends on more than {MAX_REDIRECTS} times", model)
    cause = next((cause for cause in causes if isinstance(cause, (aiohttp.ClientError, TimeoutError))), causes[-1])
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return Unreachable("cannot reach the server in time", model)
    if isinstance(cause, TimeoutError):
        return Unreachable("no answer in time", model)
    if isinstance(cause, aiohttp.ClientConnectorError):
        return Unreachable(f"cannot reach the server: {redact(str(cause))}", model)
    return Unreachable(f"the connection broke: {_BROKEN.get(type(cause).__name__, _NO_HTTP)}", model)


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__
