"""An HTTP client for servers that nobody vouches for: no answer past a size, none packed, and no way to elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentlab.core.errors import ModelError, ServerFault

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

MAX_BYTES = 64 * 2**20
"""Of one answer, with all that is around its text."""
MAX_REDIRECTS = 5
LINGERING_SECONDS = 0.05
_REDIRECTS = (301, 302, 303, 307, 308)


class BoundedClient:
    """Posts to the servers behind `address`; `silence` is in seconds. It belongs to the event loop it is made on."""

    def __init__(self, address: str, idle_timeout: float, headers: Mapping[str, str]) -> None:
        import aiohttp

        secure = address.startswith("https:")
        self._session = aiohttp.ClientSession(
            # How many are in flight is decided further up.
            connector=aiohttp.TCPConnector(limit=0, ssl=_certificates() if secure else True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=idle_timeout, sock_read=idle_timeout),
            headers={"Accept-Encoding": "identity", **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # Looked up once: the session would look into the environment at every call, in a thread.
            proxy=proxy_for(address),
        )

    async def post(self, url: URL, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """The head of the answer, after redirects within the server; raises ModelError for one to another server."""
        for _ in range(MAX_REDIRECTS):
            response = await self._session.post(url, data=body, headers=headers, allow_redirects=False)
            if "location" not in response.headers or response.status not in _REDIRECTS:
                # It was not asked for, and what a packed answer grows to is known only once it has.
                if response.headers.get("content-encoding", "identity") != "identity":
                    response.close()
                    raise ServerFault("the server packs its answers, though it was asked not to")
                return response
            response.close()
            sent_to = url.join(type(url)(response.headers["location"]))
            if sent_to.origin() != url.origin():
                raise ModelError(f"the server sends on to {sent_to.origin()}; ask that one, if you trust it")
            url = sent_to
        raise ModelError(f"the server sends on more than {MAX_REDIRECTS} times")

    async def close(self) -> None:
        await self._session.close()


class BoundedBody:
    """The body of an answer, piece by piece as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._size = 0

    async def read(self) -> bytes:
        """The next piece, b"" after the last one; raises ServerFault past `MAX_BYTES`."""
        piece = await self._content.readany()
        self._size += len(piece)
        if self._size > MAX_BYTES:
            raise ServerFault(f"the server sent more than {MAX_BYTES} bytes")
        return piece

    async def read_all(self, most: int | None = None) -> bytes:
        """What is left of it, at most `most` bytes."""
        found = bytearray()
        while piece := await self.read():
            found += piece
            if most is not None and len(found) >= most:
                break
        return bytes(found[:most])

    async def linger(self) -> None:
        """Wait a moment for the end of what should have ended: a connection that was read to its end is used again."""
        if not self._content.at_eof():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGERING_SECONDS):
                    await self.read()


def proxy_for(address: str) -> str | None:
    """The proxy that the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) names for an address."""
    parts = urlsplit(address)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")


def _certificates() -> ssl.SSLContext:
    """Trusted are those that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, else those of the package certifi."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        import certifi

        file = certifi.where()
    return ssl.create_default_context(cafile=file or None, capath=folder or None)
