"""MCP over streamable HTTP: found again after a restart, never led elsewhere, and named where a key is missing."""

from __future__ import annotations

import asyncio
import http.server
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
    told_dead = await call(session, "add", a=1, b=1)
    assert told_dead == "Error: the MCP server far cannot be reached (ConnectError)"
    over_http.stop()
    over_http.start()
    assert await call(session, "add", a=1, b=1) == "2"
    server_of(manager)._seconds = 0.3
    assert "did not answer within 0.3 seconds" in await call(session, "wait", seconds=60)
    server_of(manager)._seconds = 20.0
    assert await call(session, "add", a=1, b=2) == "3"


class Web(http.server.BaseHTTPRequestHandler):
    """No MCP server at all: sends elsewhere, or refuses."""

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
