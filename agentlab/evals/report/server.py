"""Serves the page of a run on this machine, and tells it when there is more: what `agentlab view` runs.

It answers GET for two addresses, `/` and `/data`, under the names of this machine alone: a page from elsewhere that
had its own name resolved to 127.0.0.1 is refused by its Host header, and its Content-Security-Policy lets the page ask
nobody else.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.core.shown import in_json
from agentlab.evals.report.live import Watched
from agentlab.evals.report.page import document

ADDRESS = "127.0.0.1"
LOOKS_EVERY = 0.3
"""Seconds."""
RESTS = 4
"""A page that takes a second to make is made at most every so many seconds."""
WAITS = 20.0
"""Seconds until a question for more is answered with: nothing yet."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class View:
    """The server of one run; `url` is its address once `start` is done."""

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self._watched = watched
        self._port = port
        self._data = watched.data()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._watching: asyncio.Task[None] | None = None
        self.url = ""
        self.path = watched.path

    async def start(self) -> None:
        """Listen; raises ConfigError where the port is taken."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._page)
        app.router.add_get("/data", self._more)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, ADDRESS, self._port)
        try:
            await site.start()
        except (OSError, OverflowError) as problem:
            await self._runner.cleanup()
            why = problem.strerror if isinstance(problem, OSError) else "there is none beyond 65535"
            raise ConfigError(f"port {self._port} cannot be used: {why}; --port 0 takes a free one") from None
        self._port = self._runner.addresses[0][1]
        self.url = f"http://{ADDRESS}:{self._port}/"
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host") not in (f"{ADDRESS}:{self._port}", f"localhost:{self._port}"):
            raise web.HTTPForbidden(text=f"open {self.url}")
        answer = await handler(request)
        answer.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
        answer.headers.update({"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"})
        return answer

    async def _page(self, request: web.Request) -> web.Response:
        text = await asyncio.to_thread(document, self._data, connect="'self'")
        return web.Response(text=text, content_type="text/html")

    async def _more(self, request: web.Request) -> web.Response:
        seen = request.query.get("after")
        async with self._changed:
            try:
                async with asyncio.timeout(WAITS):
                    await self._changed.wait_for(lambda: self._version != seen)
            except TimeoutError:
                return web.Response(status=204)
        data = in_json(await asyncio.to_thread(json.dumps, self._data, separators=(",", ":")))
        return web.Response(text=data, content_type="application/json")

    @property
    def _version(self) -> str:
        return str(self._data["live"]["version"])

    async def _watch(self) -> None:
        seen = self._version
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            if self._watched.version == seen:
                continue
            seen, began = self._watched.version, time.monotonic()
            try:
                data = await asyncio.to_thread(self._watched.data)
            except AgentlabError as problem:  # what was there stays on the screen
                data = {**self._data, "live": {"version": seen, "says": str(problem)}}
            async with self._changed:
                self._data = data
                self._changed.notify_all()
            await asyncio.sleep(RESTS * (time.monotonic() - began))
