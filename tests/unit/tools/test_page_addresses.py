"""Allowed addresses of pages: no private address in any spelling, no redirect to one, no false name."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentlab.tools.pages import Page, is_public, read_page
from support.small_web import HTML, Web, read

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2001:db8::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "5f00::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_that_is_public_is_known(address):
    assert is_public(ipaddress.ip_address(address))


SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://017700000001:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[0:0:0:0:0:ffff:7f00:0001]:{port}/",
    "http://[::]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://user:password@127.0.0.1:{port}/",
    "http://example.org@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.org/",
    "http://127.0.0.1:{port}#@example.org/",
    "https://127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1:{port}/",
    "data:text/html,x",
    "javascript:alert(1)",
    "http://",
    "http:///x",
    "http://[::1",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:x/",
    "http://" + "a" * 300 + "/",
    "http://a..b/",
    "",
    "\0",
    "x",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_however_it_is_spelt_this_machine_is_not_asked(web, spelling):
    web.page("/", "<p>SECRET")
    page = await read_page(spelling.replace("{port}", str(web.server_port)))
    assert page.problem and not page.text
    assert web.received == []


@pytest.mark.parametrize(
    "target", ["http://[::1]:{port}/", "http://localhost:{port}/", "http://10.0.0.1/", "file:///x"]
)
async def test_a_redirect_to_a_private_address_is_refused(web, target):
    allowed = ipaddress.ip_address("127.0.0.1")
    hosts = []

    def only_the_first(address: Any) -> bool:
        hosts.append(str(address))
        return address == allowed and len(hosts) == 1

    web.page("/", "<p>SECRET")
    url = web.redirect("/go", target.replace("{port}", str(web.server_port)))
    page = await read_page(url, allowed=only_the_first)
    assert page.problem in (
        "its host is not on the public internet",
        "its address is not one of the web (http or https)",
    )
    assert web.received == ["/go"]


async def test_a_name_is_resolved_once_and_the_checked_address_is_used(web, monkeypatch):
    """DNS rebinding: the name is public when it is checked, and local at the next look-up."""
    requests, connected = [], []

    def rebinding(host, port, *_, **__):
        requests.append(host)
        address = "93.184.216.34" if len(requests) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def connect(self, address):
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket.socket, "connect", connect)
    page = await read_page(f"http://rebind.example:{web.server_port}/")
    assert page == Page(problem="its host does not answer")
    assert (requests, connected) == (["rebind.example"], ["93.184.216.34"])


async def test_a_name_with_one_private_address_is_refused_whole(monkeypatch):
    def both(host, port, *_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("93.184.216.34", "192.168.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it connected"))
    assert await read_page("http://both.example/") == Page(problem="its host is not on the public internet")


async def test_a_name_that_takes_forever_to_resolve_is_left_behind(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(5) and [])
    page = await read_page("http://slow.example/", seconds=0.2)
    assert page == Page(problem="it took longer than 0.2 seconds")
    release.set()


@pytest.fixture
def certified(web: Web, tmp_path: Path) -> Path:
    """The certificate of `pages.test`, behind which the web of the test is now."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=pages.test", "-addext", "subjectAltName=DNS:pages.test"]
    files = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", "-nodes", *files, *subject], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    web.socket = context.wrap_socket(web.socket, server_side=True)
    return certificate


async def test_certificates_are_verified_and_slow_tls_pages_time_out(web, certified, monkeypatch):
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", web.server_port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
    web.page("/", "<p>there")
    url = f"https://pages.test:{web.server_port}/"
    not_trusted = Page(problem="it cannot be fetched (ClientConnectorCertificateError)")
    assert await read(url) == not_trusted
    trusting = ssl.create_default_context(cafile=certified)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    assert await read(url) == Page(text="there")
    assert await read(url.replace("pages", "others")) == not_trusted
    web.raw("/slow", HTML + b"\r\n", endless=b"x", pause=0.05)
    started = time.monotonic()
    assert await read(url + "slow", seconds=0.5) == Page(problem="it took longer than 0.5 seconds")
    assert time.monotonic() - started < 4


async def test_the_proxies_and_passwords_of_the_environment_are_not_used(web, monkeypatch, tmp_path):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert (await read(web.page("/", "<p>there"))).text == "there"
    assert "Authorization" not in web.headers[0]
