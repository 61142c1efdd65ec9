"""Reading a page: its text, refused pages, and truncated or dropped parts."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentlab.tools.pages import Page
from support.small_web import HTML, read


async def test_the_text_of_a_page_is_its_body_without_scripts_and_styles(web):
    url = web.page(
        "/",
        "<title>not body</title><style>p{}</style><nav>Menu</nav><p>One <b>two</b>\n  three</p><script>evil()</script>"
        "<div>four<!-- five --><style>x{}</style></div>",
    )
    assert await read(url) == Page(text="Menu One two\nthree four")
    assert web.headers[0]["Accept-Encoding"] == "gzip"
    assert "Authorization" not in web.headers[0] and "Cookie" not in web.headers[0]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<p>schön".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        ("<p>schön".encode("latin-1"), 'text/html; Charset="windows-1252"'),
        ("<meta charset=latin-1><p>schön".encode("latin-1"), "text/html"),
        ("<p>schön".encode(), "text/html"),
        ("<p>schön".encode(), "text/html; charset=klingon"),
        ("<p>schön".encode(), "text/html; charset=punycode"),
        ("<p>schön".encode(), "text/html; charset=rot13"),
        ("<p>schön".encode(), "text/html; charset=zip"),
        ("<?xml version='1.0' encoding='utf-8'?><html><body>schön</body></html>".encode(), "application/xhtml+xml"),
        ("<?xml version='1.0'?><feed>schön</feed>".encode(), "text/html"),
        ("schön".encode(), "Text/HTML"),
    ],
)
async def test_charsets_are_read_as_declared_and_odd_ones_do_no_harm(web, body, kind):
    assert (await read(web.page("/", body, kind))).text == "schön"


async def test_a_page_that_looks_like_a_file_name_is_only_text(web):
    assert (await read(web.page("/", "http://example.org/x.html"))).text == "http://example.org/x.html"


async def test_only_the_beginning_of_a_long_text_is_kept(web):
    assert len((await read(web.page("/", "<p>" + "word " * 5_000))).text) == 8_000


async def test_a_packed_page_is_unpacked(web):
    url = web.page("/", gzip.compress(b"<p>packed"), Content_Encoding="gzip")
    assert (await read(url)).text == "packed"


@pytest.mark.parametrize("packing", ["br", "gzip, gzip", "deflate", "zstd"])
async def test_a_packing_that_was_not_asked_for_is_refused(web, packing):
    page = await read(web.page("/", b"x", Content_Encoding=packing))
    assert page.problem and not page.text


@pytest.mark.parametrize("kind", ["application/pdf", "text/plain", "image/png", "application/json", "text/htmlx", ""])
async def test_only_html_is_read(web, kind):
    page = await read(web.page("/", b"<p>x", kind))
    assert page == Page(problem=f"it is not HTML but {kind or 'of no stated type'}")


@pytest.mark.parametrize("status", [204, 206, 403, 404, 500, 304])
async def test_missing_page_is_reported(web, status):
    url = web.answer("/", b"", {"Content-Type": "text/html"}, status)
    assert await read(url) == Page(problem=f"it answers with HTTP {status}")


async def test_page_without_text_is_reported(web):
    assert await read(web.page("/", "<script>x</script>")) == Page(problem="it holds no text")
    assert await read(web.page("/", b"")) == Page(problem="it holds no text")


async def test_an_endless_page_is_truncated(web):
    page = await read(web.raw("/", HTML + b"\r\n", endless=b"<p>again and again" * 500))
    assert page == Page(problem="it is larger than 1,000,000 bytes")


async def test_an_endless_chunked_page_is_truncated(web):
    url = web.raw("/", HTML + b"Transfer-Encoding: chunked\r\n\r\n", endless=b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
    assert await read(url) == Page(problem="it is larger than 1,000,000 bytes")


async def test_an_endless_line_between_chunks_is_truncated(web):
    started = time.monotonic()
    page = await read(web.raw("/", HTML + b"Transfer-Encoding: chunked\r\n\r\n", endless=b"1" * 4096), seconds=2)
    assert page.problem and time.monotonic() - started < 10


async def test_endless_headers_are_cut_off(web):
    started = time.monotonic()
    page = await read(web.raw("/", b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n" * 100), seconds=20)
    assert page.problem.startswith("it cannot be fetched") and time.monotonic() - started < 10


async def test_a_page_that_is_announced_longer_than_it_is_counts_as_truncated(web):
    assert (await read(web.raw("/", HTML + b"Content-Length: 99\r\n\r\n<p>half"))).problem.startswith("it cannot")


async def test_a_decompression_bomb_is_truncated(web):
    bomb = gzip.compress(b"\0" * 30_000_000, compresslevel=9)
    assert len(bomb) < 40_000
    page = await read(web.page("/", bomb, Content_Encoding="gzip"))
    assert page == Page(problem="it is larger than 1,000,000 bytes")
    assert (await read(web.page("/", b"no gzip", Content_Encoding="gzip"))).problem.startswith("it cannot be fetched")


@pytest.mark.parametrize("location", ["before the headers", "in a header", "in the body"])
async def test_a_slow_page_is_left_behind(web, location):
    pieces = {"before the headers": b"HTTP/1.1 2", "in a header": HTML + b"X-Slow: ", "in the body": HTML + b"\r\n<p>"}
    url = (
        web.raw("/", pieces[location], pause=1.0)
        if location == "before the headers"
        else web.raw("/", pieces[location], endless=b"x", pause=0.05)
    )
    started = time.monotonic()
    assert await read(url, seconds=0.4) == Page(problem="it took longer than 0.4 seconds")
    assert time.monotonic() - started < 4


async def test_a_page_made_to_be_slow_to_parse_is_read_at_once(web):
    started = time.monotonic()
    for soup in ("<b></i>", "<p>", "<i>x", "<a ", "<!--", "<![", "&", "<a x=1 ", "<table><tr><td>"):
        await read(web.page("/", soup * (900_000 // len(soup))))
    assert time.monotonic() - started < 30, "another parser takes a minute for the first alone"


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


async def test_cancelled_wait_closes_the_connection(web):
    url = web.raw("/", HTML + b"\r\n", endless=b"x", pause=0.02)
    reading = asyncio.create_task(read(url, seconds=30))
    await until(lambda: web.received)
    before = threading.active_count()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: threading.active_count() < before)


async def test_redirects_are_followed_five_times(web):
    web.page("/0", "<p>there")
    for number in range(1, 7):
        web.redirect(f"/{number}", f"/{number - 1}", status=(301, 302, 303, 307, 308)[number % 5])
    assert (await read(web.url("/5"))).text == "there"
    assert await read(web.url("/6")) == Page(problem="it redirects more than 5 times")
    web.redirect("/loop", "/loop")
    assert "redirects" in (await read(web.url("/loop"))).problem


async def test_the_body_of_a_redirect_is_not_read(web):
    web.page("/there", "<p>there")
    head = f"HTTP/1.1 302 Found\r\nLocation: {web.url('/there')}\r\n\r\n".encode()
    assert (await read(web.raw("/", head, endless=b"x" * 4096), seconds=3)).text == "there"
