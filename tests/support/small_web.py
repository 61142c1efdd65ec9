"""A small web on this machine: pages by path, slow, endless or packed, and a reader of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentlab.tools.pages import Page, read_page
from support.tool_sessions import anywhere

Answer = Callable[[BaseHTTPRequestHandler], None]


class Web(ThreadingHTTPServer):
    """A small web on this machine: answers by path, and a list of the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.received: list[str] = []
        self.headers: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Request)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback if a client hangs up, as many tests do."""

    def page(self, path: str, body: str | bytes, kind: str = "text/html; charset=utf-8", **more: str) -> str:
        content = body.encode() if isinstance(body, str) else body
        return self.answer(path, content, {"Content-Type": kind, **{k.replace("_", "-"): v for k, v in more.items()}})

    def answer(self, path: str, content: bytes, headers: dict[str, str], status: int = 200) -> str:
        def send(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(content)

        self.answers[path] = send
        return self.url(path)

    def redirect(self, path: str, location: str, status: int = 302, body: bytes = b"") -> str:
        return self.answer(path, body, {"Location": location}, status)

    def raw(self, path: str, *pieces: bytes, endless: bytes = b"", pause: float = 0.0) -> str:
        def send(request: BaseHTTPRequestHandler) -> None:
            for piece in itertools.chain(pieces, itertools.repeat(endless) if endless else ()):
                request.wfile.write(piece)
                time.sleep(pause)

        self.answers[path] = send
        return self.url(path)


class _Request(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.received.append(self.path)
        self.server.headers.append(dict(self.headers))
        self.server.answers[self.path](self)

    def log_message(self, *_: Any) -> None:
        pass


async def read(url: str, seconds: float = 5.0) -> Page:
    return await read_page(url, allowed=anywhere, seconds=seconds)


HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
