"""MCP over streamable HTTP: reconnects after a restart, follows no untrusted redirect, and names a missing key."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from agentlab.tools.mcp.answers import MAX_RESULT_CHARS
from support.mcp_servers import ALL, names, server_of
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


async def test_a_remote_server_is_listed_called_and_found_again(opened, over_http):
    manager = await opened({"far": {"url": over_http.url}})
    assert names(manager) == ALL and manager.problems == []
    session = session_with(*manager.tools)
    assert await call(session, "add", a=2, b=3) == "5"
    assert await call(session, "steps", number=2) == "done"
    assert await call(session, "fail", why="no luck") == "Error: Error executing tool fail: no luck"
    assert len(await call(session, "long", characters=MAX_RESULT_CHARS)) == MAX_RESULT_CHARS
    sessions = [session_with(*manager.tools) for _ in range(10)]
    assert len(set(await asyncio.gather(*(call(s, "echo", text=str(n)) for n, s in enumerate(sessions))))) == 10

    assert (await call(session, "die")).startswith("Error: die: the MCP server far ")
    unreachable = await call(session, "add", a=1, b=1)
    assert unreachable == "Error: the MCP server far cannot be reached (ConnectError)"
    over_http.stop()
    over_http.start()
    assert await call(session, "add", a=1, b=1) == "2"
    server_of(manager)._seconds = 0.3
    assert "did not answer within 0.3 seconds" in await call(session, "wait", seconds=60)
    server_of(manager)._seconds = 20.0
    assert await call(session, "add", a=1, b=2) == "3"


class Web(http.server.BaseHTTPRequestHandler):
    """Web server without MCP: it redirects or refuses."""

    seen: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, dict(self.headers)))
        if self.path == "/away":
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/secret")
        else:
            self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    Web.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def test_invalid_server_addresses_are_reported_and_redirects_refused(opened, web, monkeypatch):
    monkeypatch.setenv("FAR_KEY", "a-very-secret-value")
    headers = {"Authorization": "Bearer ${FAR_KEY}"}
    pages = ("away", "refused")
    manager = await opened({page: {"url": f"{web}/{page}", "headers": headers} for page in pages})
    assert manager.tools == () and len(manager.problems) == 2
    assert "Redirect to http://localhost:" in manager.problems[0] and "not followed" in manager.problems[0]
    assert manager.problems[1].endswith("cannot be reached (Server returned an error response (HTTP 403))")
    assert not any("\n" in problem for problem in manager.problems)
    assert "/secret" not in {path for path, _ in Web.seen}
    assert {sent["Authorization"] for _, sent in Web.seen} == {"Bearer a-very-secret-value"}
    assert not any("a-very-secret-value" in problem for problem in manager.problems)


async def test_a_variable_that_is_not_set_is_named(opened):
    manager = await opened({"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${NOT_SET_AT_ALL}"}}})
    assert manager.problems == [
        "the MCP server far cannot be reached (X-Key needs the environment variable NOT_SET_AT_ALL, which is not set)"
    ]


class Forgetful(http.server.BaseHTTPRequestHandler):
    """Server that refuses an unknown session with a bare HTTP status."""

    sessions: ClassVar[list[str]] = []
    status: ClassVar[int] = 400
    forgets: ClassVar[bool] = False

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = message.get("method"), self.headers.get("Mcp-Session-Id")
        if method == "initialize":
            Forgetful.sessions.append(session := f"s{len(Forgetful.sessions)}")
            Forgetful.forgets = False
            self.answer(200, {"id": message["id"], "result": HELLO}, session)
        elif session not in Forgetful.sessions[-1:]:
            self.answer(400, {"id": None, "error": {"code": -32000, "message": "Bad Request"}})
        elif Forgetful.forgets:
            self.send_error(Forgetful.status)
        elif method in LISTING_AND_RESULT:
            self.answer(200, {"id": message["id"], "result": LISTING_AND_RESULT[method](session)})
        else:
            self.send_response(202)
            self.end_headers()

    def do_GET(self) -> None:
        self.send_response(405)
        self.end_headers()

    def do_DELETE(self) -> None:
        self.do_GET()

    def answer(self, status: int, row: dict[str, Any], session: str | None = None) -> None:
        body = json.dumps({"jsonrpc": "2.0", **row}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
LISTING_AND_RESULT = {
    "tools/list": lambda session: {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    "tools/call": lambda session: {"content": [{"type": "text", "text": f"in {session}"}]},
}
FORGOT = {400: ["in s0", "in s1"], 404: ["in s0", "in s1"], 500: ["in s0"]}


@pytest.mark.parametrize(("status", "results"), FORGOT.items())
async def test_a_session_that_the_server_forgot_is_opened_again(opened, status, results):
    Forgetful.sessions, Forgetful.status, Forgetful.forgets = [], status, False
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        manager = await opened({"x": {"url": f"http://127.0.0.1:{server.server_address[1]}/mcp"}})
        session = session_with(*manager.tools)
        texts = [await call(session, "t")]
        Forgetful.forgets = True
        texts.append(await call(session, "t"))
        server.shutdown()
    assert [text for text in texts if not text.startswith("Error: ")] == results, texts
    assert len(Forgetful.sessions) == len(results)
