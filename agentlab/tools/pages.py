"""Downloads the text of a web page from an untrusted address.

    page = await read_page("https://example.org/ferries")
    page.text or page.problem

Addresses of this machine and its network are refused in every spelling and after every redirect. A name is resolved
once, all its addresses are checked, and the connection goes to one of the checked addresses. Proxies of the environment
are not used, because they would resolve the name themselves. Time, bytes and redirects are limited. `problem` describes
any error in words.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.abc import AbstractResolver
    from yarl import URL

AddressCheck = Callable[[IPv4Address | IPv6Address], bool]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = "its host is not on the public internet"
_REDIRECTS = (301, 302, 303, 307, 308)
_HTML = ("text/html", "application/xhtml+xml")
_SLOW_CODECS = ("punycode", "idna")
"""Text codecs that take quadratic time; no page uses them."""
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; agentlab)",
    "Accept": "text/html, application/xhtml+xml",
    "Accept-Encoding": "gzip",
}


MAX_SECONDS = 10.0
"""Time limit from the name resolution to the end of parsing."""
MAX_BYTES = 1_000_000
"""Maximum size of the decompressed page."""
MAX_REDIRECTS = 5
MAX_CHARACTERS = 8_000
"""Length to which the text is truncated."""


@dataclass(frozen=True, kw_only=True)
class Page:
    text: str = ""
    problem: str = ""
    """Reason why there is no text."""


class _Unreadable(Exception):
    """Reason why a page has no text, in words."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True if `address` is a host of the public internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or (IPv4Address(address.packed[-4:]) if address in _NAT64 else None)
        if inner is not None:
            return is_public(inner)
        if address.sixtofour is not None or address.teredo is not None or address not in _GLOBAL_V6:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


async def read_page(url: str, *, allowed: AddressCheck = is_public, seconds: float = MAX_SECONDS) -> Page:
    """Return the text of the page's body without scripts and styles, or a problem; raise nothing for a bad page."""
    import aiohttp

    try:
        async with asyncio.timeout(seconds):
            content, charset = await _download(url, allowed)
            text = await asyncio.to_thread(_text, content, charset)
            return Page(text=text[:MAX_CHARACTERS])
    except _Unreadable as reason:
        return Page(problem=str(reason))
    except TimeoutError:
        return Page(problem=f"it took longer than {seconds:g} seconds")
    except aiohttp.ClientConnectorDNSError:
        return Page(problem="its host name cannot be resolved")
    except (aiohttp.ClientError, OSError, ValueError) as failure:
        if isinstance(failure, aiohttp.ClientConnectorError) and not isinstance(failure, aiohttp.ClientSSLError):
            return Page(problem="its host does not answer")
        return Page(problem=f"it cannot be fetched ({type(failure).__name__})")


async def _download(address: str, allowed: AddressCheck) -> tuple[bytes, str]:
    """Return the bytes of a page and the charset of its header, "" if the header has none."""
    import aiohttp
    from yarl import URL

    url = URL(address)
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=_checked_resolver(allowed), use_dns_cache=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
    )
    async with client:
        for _ in range(MAX_REDIRECTS + 1):
            _check_url(url, allowed)
            async with client.get(url, allow_redirects=False) as response:
                try:
                    location = response.headers.get("Location")
                    if response.status not in _REDIRECTS or location is None:
                        return await _body(response)
                    url = url.join(URL(location))
                finally:
                    # A slow server would also delay a graceful close.
                    if response.connection is not None and response.connection.transport is not None:
                        response.connection.transport.abort()
    raise _Unreadable(f"it redirects more than {MAX_REDIRECTS} times")


def _check_url(url: URL, allowed: AddressCheck) -> None:
    if url.scheme not in ("http", "https"):
        raise _Unreadable("its address is not one of the web (http or https)")
    if url.raw_user is not None or url.raw_password is not None:
        raise _Unreadable("its address carries a user name")
    host = url.raw_host or ""
    # aiohttp does not resolve numeric hosts, so the resolver cannot check them. This includes short forms (127.1).
    if ":" in host or host.replace(".", "").isdigit():
        with contextlib.suppress(ValueError):
            if allowed(ipaddress.ip_address(host)):
                return
        raise _Unreadable(_NOT_PUBLIC)


def _checked_resolver(allowed: AddressCheck) -> AbstractResolver:
    from aiohttp import ThreadedResolver

    class CheckedResolver(ThreadedResolver):
        """Resolver that refuses a name if any of its addresses is not allowed."""

        async def resolve(self, *args: Any, **options: Any) -> Any:
            rows = await super().resolve(*args, **options)
            if not all(allowed(ipaddress.ip_address(row["host"])) for row in rows):
                raise _Unreadable(_NOT_PUBLIC)
            return rows

    return CheckedResolver()


async def _body(response: ClientResponse) -> tuple[bytes, str]:
    if response.status != 200:
        raise _Unreadable(f"it answers with HTTP {response.status}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind.lower() not in _HTML:
        raise _Unreadable(f"it is not HTML but {kind[:50] or 'of no stated type'}")
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", "gzip"):
        raise _Unreadable("it is packed in a way that was not asked for")
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > MAX_BYTES:
            raise _Unreadable(f"it is larger than {MAX_BYTES:,} bytes")
    return bytes(content), response.charset or ""


def _text(content: bytes, charset: str) -> str:
    """Return the lines of a page that contain text. Other parsers than lxml need minutes for a hostile page."""
    from bs4.dammit import EncodingDetector

    try:
        from lxml import etree
    except ImportError:
        raise _Unreadable("pages cannot be read without the package lxml") from None
    declared = charset or EncodingDetector.find_declared_encoding(content, is_html=True) or "utf-8"
    markup = _decoded(content, declared).encode("utf-8", "replace")
    page = etree.fromstring(markup, etree.HTMLParser(encoding="utf-8")) if markup.strip() else None
    if page is None:
        raise _Unreadable("it holds no text")
    etree.strip_elements(page, "script", "style", etree.Comment, etree.ProcessingInstruction, with_tail=False)
    # Remove the title, the only text of a head. In a malformed page, a parser cannot tell where the body starts.
    if (title := page.find(".//title")) is not None:
        title.clear(keep_tail=True)
    lines = (" ".join(line.split()) for line in " ".join(page.itertext()).splitlines())
    text = "\n".join(line for line in lines if line)
    if not text:
        raise _Unreadable("it holds no text")
    return text


def _decoded(content: bytes, charset: str) -> str:
    with contextlib.suppress(LookupError, ValueError):
        if codecs.lookup(charset).name not in _SLOW_CODECS:
            return content.decode(charset, "replace")
    return content.decode("utf-8", "replace")
