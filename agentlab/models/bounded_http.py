"""An HTTP client for servers that nobody vouches for: no answer past a size, none packed, and no way to elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import openai

from agentlab.core.errors import ModelError, ServerFault

MOST_BYTES = 64 * 2**20
"""Of one answer, with all that is around its text."""


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_BYTES:
                raise ServerFault(f"the server sent more than {MOST_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _guard(response: httpx2.Response) -> None:
    # It was not asked for, and what a packed answer grows to is known only once it has.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ServerFault("the server packs its answers, though it was asked not to")
    if response.has_redirect_location:
        asked, sent_to = response.url, response.url.join(response.headers["location"])
        if (asked.scheme, asked.host, asked.port) != (sent_to.scheme, sent_to.host, sent_to.port):
            raise ModelError(f"the server sends on to {sent_to.scheme}://{sent_to.host}; ask that one, if you trust it")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


def bounded_client() -> httpx2.AsyncClient:
    return openai.DefaultAioHttpClient(headers={"Accept-Encoding": "identity"}, event_hooks={"response": [_guard]})
