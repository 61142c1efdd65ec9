"""HTTP client for the official SDK: no answer past a size, none packed, and no redirect to another server.

It imports the SDK, which takes half a second: import it where a call is made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai

from agentlab.core.errors import ModelError, ServerFault, UnreadableAnswer
from agentlab.wire.limits import CURRENT

MAX_BYTES = 64 * 2**20
"""Largest size of one answer, with everything around its text."""
MAX_ERROR_BYTES = 65_536
"""Bytes of a refusal that are read."""
MAX_REDIRECTS = 5


class BoundedStream(httpx2.AsyncByteStream):
    """The body of an answer: ServerFault past `MAX_BYTES`; a refusal ends early, because its first words suffice."""

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
    """Report the limits in the headers of an answer; raises ModelError for an answer that is not to be read."""
    if (ticket := CURRENT.get()) is not None:
        ticket.observe_headers(response.headers)
    if response.has_redirect_location:
        target, url = response.url.join(response.headers["location"]), response.url
        if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
            origin = target.copy_with(path="/", query=None, fragment=None)
            raise ModelError(f"the server redirects to {origin}; set that address, if you trust it")
    # The request rules it out, and the size of its content is unknown before it is unpacked.
    elif response.headers.get("content-encoding", "identity") != "identity":
        raise UnreadableAnswer("the server compresses its answers, although the request rules that out")
    response.stream = BoundedStream(response)


def http_client() -> httpx2.AsyncClient:
    return openai.DefaultAioHttpClient(
        # The rate limiter bounds the calls in flight; 0 means no limit to this transport.
        limits=httpx2.Limits(max_connections=0),
        max_redirects=MAX_REDIRECTS,
        event_hooks={"response": [check_head]},
    )
