"""Local server with OpenAI's chat completions: scripted responses, streamed, with usage at the end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

Response = dict[str, Any]


class FakeOpenAI:
    """`respond(body)` returns the response; `seen` keeps the received bodies and headers."""

    def __init__(self, respond: Callable[[dict[str, Any]], Response]) -> None:
        self.respond = respond
        self.seen: list[dict[str, Any]] = []
        self.headers: list[CIMultiDict[str]] = []
        self.urls: list[str] = []
        self.base_url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        self.headers.append(request.headers.copy())
        self.urls.append(str(request.rel_url))
        scripted = self.respond(body)
        if "text" in scripted:
            return web.Response(text=scripted["text"], status=scripted["status"], headers=scripted["headers"])
        if "status" in scripted:
            error = {"message": scripted.get("message", "no"), "code": scripted.get("code")}
            return web.json_response(
                scripted.get("body", {"error": error}),
                status=scripted["status"],
                headers=scripted.get("headers", {}),
            )
        if "whole" in scripted:
            return web.Response(body=scripted["whole"], content_type="text/event-stream")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in scripted.get("raw", ()):
            await response.write(piece if isinstance(piece, bytes) else piece.encode())
        for delta in scripted.get("deltas", ()):
            await self._chunk(response, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await asyncio.sleep(scripted.get("pause", 0))
        if scripted.get("drop"):
            request.transport.close()
            return response
        if scripted.get("finish"):
            await self._chunk(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": scripted["finish"]}]})
        if scripted.get("usage"):
            await self._chunk(response, {"choices": scripted.get("no_choices", []), "usage": scripted["usage"]})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _chunk(self, response: web.StreamResponse, content: dict[str, Any]) -> None:
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "served-model", **content}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


@asynccontextmanager
async def serving(respond: Callable[[dict[str, Any]], Response]) -> AsyncIterator[FakeOpenAI]:
    fake = FakeOpenAI(respond)
    app = web.Application(client_max_size=2**25)
    app.router.add_post("/{path:.+}/chat/completions", fake.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield fake
    finally:
        await runner.cleanup()


def text(*pieces: str, **more: Any) -> Response:
    return {"deltas": [{"content": piece} for piece in pieces], "finish": "stop", **more}


@contextmanager
def in_a_thread(respond: Callable[[dict[str, Any]], Response]) -> Iterator[FakeOpenAI]:
    """`serving` for tests that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = serving(respond)
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 8},
}
