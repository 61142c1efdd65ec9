"""The text of a web page whose address somebody else chose.

    page = await read_page("https://example.org/ferries")
    page.text or page.problem

An address on this machine or in its network is refused, however it is spelt and whatever leads there: a name is
resolved once, all its addresses are checked, and the connection goes to the very address that was checked, for every
redirect anew. Proxies of the environment are not used, because they would resolve the name themselves. Time, bytes and
redirects are limited, and so is the work of parsing. Whatever goes wrong is a `problem`, in words.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import ipaddress
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import requests

Allowed = Callable[[IPv4Address | IPv6Address], bool]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_REDIRECTS = (301, 302, 303, 307, 308)
_HTML = ("text/html", "application/xhtml+xml")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_SLOW_CODECS = ("punycode", "idna")
"""Text codecs that take quadratic time and that no page is written in."""
_PIECE = 16_384
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; agentlab)",
    "Accept": "text/html, application/xhtml+xml",
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    seconds: float = 10.0
    """From the first look-up of the name to the end of the parsing."""
    bytes: int = 1_000_000
    """Of the page, sent and unpacked."""
    redirects: int = 5
    characters: int = 8_000
    """Of the text that is kept, from its beginning."""


LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Page:
    text: str = ""
    problem: str = ""
    """Why there is no text."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether `address` is a host of the public internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or (IPv4Address(address.packed[-4:]) if address in _NAT64 else None)
        if inner is not None:
            return is_public(inner)
        if address.sixtofour is not None or address.teredo is not None or address not in _GLOBAL_V6:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


async def read_page(url: str, *, allowed: Allowed = is_public, limits: Limits = LIMITS) -> Page:
    """The text of the page's body without scripts and styles, or why it could not be had; never raises for a page."""
    import requests
    import urllib3

    visit = _Visit(allowed, limits)
    try:
        async with asyncio.timeout(limits.seconds):
            return Page(text=await asyncio.to_thread(visit.text_of, url))
    except _Refused as refusal:
        return Page(problem=str(refusal))
    except (TimeoutError, requests.Timeout):
        return Page(problem=f"it took longer than {limits.seconds:g} seconds")
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as failure:
        return Page(problem=f"it cannot be fetched ({type(failure).__name__})")
    finally:
        visit.hang_up()


class _Refused(Exception):
    pass


class _Visit:
    """One page, read in a thread; `hang_up` may be called from another and ends whatever the thread waits for."""

    def __init__(self, allowed: Allowed, limits: Limits) -> None:
        self._allowed = allowed
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._lock = threading.Lock()
        self._over = False
        self._connections: list[socket.socket] = []

    def text_of(self, url: str) -> str:
        import requests.adapters

        with contextlib.closing(requests.adapters.HTTPAdapter()) as adapter:
            adapter.poolmanager.pool_classes_by_scheme = {
                scheme: _checked(pool, self.connect)
                for scheme, pool in adapter.poolmanager.pool_classes_by_scheme.items()
            }
            for _ in range(self._limits.redirects + 1):
                # Not through a requests.Session: that one reads the body of a redirect whole, however long it is.
                request = requests.Request("GET", _checked_url(url), headers=_HEADERS).prepare()
                with adapter.send(request, stream=True, timeout=self._limits.seconds) as response:
                    location = response.headers.get("Location")
                    if response.status_code not in _REDIRECTS or location is None:
                        return self._text(*self._body(response))
                    url = urljoin(str(request.url), location)
        raise _Refused(f"it redirects more than {self._limits.redirects} times")

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection to `host`, if all its addresses are allowed."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise _Refused("its host name cannot be resolved") from None
        for *_, address in found:
            if not self._allowed(ipaddress.ip_address(address[0])):
                raise _Refused("its host is not on the public internet")
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(self._left())
                connection.connect(address)
                self._remember(connection)
            except BaseException as failure:
                connection.close()
                if not isinstance(failure, OSError):
                    raise
            else:
                return connection
        raise _Refused("its host does not answer")

    def hang_up(self) -> None:
        with self._lock:
            self._over = True
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._connections.clear()

    def _remember(self, connection: socket.socket) -> None:
        with self._lock:
            if self._over:
                raise TimeoutError
            # A second handle, because TLS takes the first one over.
            self._connections.append(connection.dup())

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if self._over or left <= 0:
            raise TimeoutError
        return left

    def _body(self, response: requests.Response) -> tuple[bytes, str]:
        """The bytes of a page and its charset as the header has it, or ""."""
        if response.status_code != 200:
            raise _Refused(f"it answers with HTTP {response.status_code}")
        kind = response.headers.get("Content-Type", "")
        if kind.partition(";")[0].strip().lower() not in _HTML:
            raise _Refused(f"it is not HTML but {kind.partition(';')[0].strip()[:50] or 'of no stated type'}")
        packing = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip"):
            raise _Refused("it is packed in a way that was not asked for")
        unpacker = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        limit = self._limits.bytes
        content, taken = bytearray(), 0
        # Read and unpacked piece by piece: `iter_content` would unpack a piece to a thousand times its size.
        while piece := response.raw.read(_PIECE, decode_content=False):
            self._left()
            taken += len(piece)
            try:
                content += unpacker.decompress(piece, limit + 1 - len(content)) if unpacker else piece
            except zlib.error:
                raise _Refused("it cannot be unpacked") from None
            if max(len(content), taken) > limit:
                raise _Refused(f"it is larger than {limit:,} bytes")
        # A connection that was hung up looks like the end of a page.
        self._left()
        charset = _CHARSET.search(kind)
        return bytes(content), charset[1] if charset else ""

    def _text(self, content: bytes, charset: str) -> str:
        from bs4 import BeautifulSoup
        from bs4.dammit import EncodingDetector

        declared = charset or EncodingDetector.find_declared_encoding(content, is_html=True) or "utf-8"
        # Behind a line break and as a file, BeautifulSoup does not warn of XML or of text that looks like a file name.
        markup = io.BytesIO(b"\n" + _decoded(content, declared).encode("utf-8", "replace"))
        page = BeautifulSoup(markup, builder=_builder(self._left), from_encoding="utf-8")
        # The title is all the text a head has; where the body begins, a parser can only guess in a sloppy page.
        for tag in [*page(["script", "style"]), *page("title", limit=1)]:
            tag.decompose()
        lines = (" ".join(line.split()) for line in page.get_text(" ").splitlines())
        text = "\n".join(line for line in lines if line)
        if not text:
            raise _Refused("it holds no text")
        return text[: self._limits.characters]


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise _Refused("its address is not one of the web (http or https)")
    if "@" in parts.netloc:
        raise _Refused("its address carries a user name")
    return url


def _checked(pool: Any, connect: Callable[[str, int], socket.socket]) -> Any:
    """A kind of connection pool like `pool`, whose connections come from `connect`."""

    def opened(connection: Any) -> socket.socket:
        return connect(connection.host.strip("[]"), connection.port)

    connection = type("_Connection", (pool.ConnectionCls,), {"_new_conn": opened})
    return type("_Pool", (pool,), {"ConnectionCls": connection})


def _decoded(content: bytes, charset: str) -> str:
    with contextlib.suppress(LookupError, ValueError):
        if codecs.lookup(charset).name not in _SLOW_CODECS:
            return content.decode(charset, "replace")
    return content.decode("utf-8", "replace")


def _builder(check: Callable[[], object]) -> Any:
    """lxml, in pieces and with `check` before each: Python's own parser takes minutes for a page made to be slow."""
    import bs4.builder

    builder = getattr(bs4.builder, "LXMLTreeBuilder", None)
    if builder is None:
        raise _Refused("pages cannot be read without the package lxml")

    def feed(self: Any, markup: bytes) -> None:
        self.parser = self.parser_for("utf-8")
        for start in range(0, len(markup), _PIECE):
            check()
            self.parser.feed(markup[start : start + _PIECE])
        self.parser.close()

    return type("_Piecewise", (builder,), {"feed": feed})()
