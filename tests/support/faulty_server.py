"""A local server that misbehaves; the first part of its path names the fault."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

Write = Callable[[bytes], Awaitable[None]]
Fault = Callable[[Write], Awaitable[None]]
GOOD_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def head(status: int = 200, kind: str = "text/event-stream", **more: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", "Connection: close"]
    return (
        "\r\n".join([*lines, *(f"{name.replace('_', '-')}: {value}" for name, value in more.items())]).encode()
        + b"\r\n\r\n"
    )


def event(content: Any) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"} | {
        "choices": [{"index": 0, "delta": delta if delta is not None else {}, "finish_reason": finish}],
        **more,
    }


GOOD = (
    head()
    + event(chunk({"role": "assistant", "content": "Between 410 and 450 grams."}))
    + event(chunk(finish="stop"))
    + event(chunk(choices=[], usage=GOOD_USAGE))
    + event(b"[DONE]")
)


def sends(*pieces: bytes) -> Fault:
    async def fault(write: Write) -> None:
        for piece in pieces:
            await write(piece)

    return fault


def streams(*contents: Any, usage: Any = GOOD_USAGE) -> Fault:
    last = [] if usage is None else [event({**chunk(), "choices": [], "usage": usage})]
    return sends(head(), *map(event, contents), *last, event(b"[DONE]"))


def drips(first: bytes, piece: bytes, pause: float = 0.02, most: int = 10**9) -> Fault:
    async def fault(write: Write) -> None:
        await write(first)
        for _ in range(most):
            await write(piece)
            if pause:
                await asyncio.sleep(pause)

    return fault


def refuses(status: int, body: Any = None, **headers: str) -> Fault:
    text = json.dumps(body if body is not None else {"error": {"message": f"no {status}", "code": None}}).encode()
    return sends(head(status, "application/json", Content_Length=str(len(text)), **headers) + text)


def _tool(**call: Any) -> Fault:
    return streams(
        chunk({"tool_calls": [{"index": 0, "id": "t", "type": "function", **call}]}), chunk(finish="tool_calls")
    )


TEXT = chunk({"content": "Between 410 and 450 grams."})
STOP = chunk(finish="stop")
FAULTS: dict[str, Fault] = {
    **{
        f"status {s}": refuses(s)
        for s in (400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 501, 502, 503, 504, 529, 599)
    },
    "429, come back in a day": refuses(429, Retry_After="86400"),
    "429, come back at nonsense": refuses(429, Retry_After="soon, perhaps"),
    "429, no quota": refuses(429, {"error": {"message": "no", "code": "insufficient_quota"}}),
    "an error that is a list": refuses(500, [1, 2]),
    "an error that is HTML": sends(head(502, "text/html") + b"<html><script>alert(1)</script>"),
    "an error of a megabyte": refuses(500, {"error": {"message": "x" * 1_000_000}}),
    "no content": sends(head(204)),
    "a redirect to itself": sends(head(307, Location="chat/completions")),
    "a redirect to elsewhere": sends(head(307, Location="http://127.0.0.2:9/v1/chat/completions")),
    "a redirect to nowhere": sends(head(302)),
    "no HTTP": sends(b"SSH-2.0-OpenSSH_9.9\r\n"),
    "a version that is none": sends(b"HTTP/9.9 200 OK\r\n\r\n"),
    "a status that is none": sends(b"HTTP/1.1 abc OK\r\n\r\n"),
    "nothing at all": sends(),
    "silence": drips(b"", b"", 0.2),
    "silence after the head": drips(head(), b"", 0.2),
    "silence in the middle": drips(head() + event(TEXT), b"", 0.2),
    "one byte at a time": drips(head(), b"d"),
    "comments for ever": drips(head(), b": keep-alive\n\n"),
    "words for ever": drips(head(), event(chunk({"content": "a"}))),
    "100 MB of comments": drips(head(), b": " + b"x" * 65_000 + b"\n\n", 0, 1600),
    "100 MB in a line": drips(head() + b"data: ", b"x" * 65_536, 0, 1600),
    "100 MB of words": drips(head(), event(chunk({"content": "word " * 10_000})), 0, 2000),
    "a head of 1 MB": sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n"),
    "10,000 headers": sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n"),
    "a length that is too long": sends(head(Content_Length="99999") + event(TEXT)),
    "a length that is too short": sends(head(Content_Length="5") + event(TEXT) + event(STOP)),
    "a negative length": sends(head(Content_Length="-5") + event(TEXT)),
    "chunks that are none": sends(head(Transfer_Encoding="chunked") + b"zz\r\nhello\r\n"),
    "packed garbage": sends(head(Content_Encoding="gzip") + b"\x1f\x8bgarbage"),
    "a bomb of 50 MB": sends(head(Content_Encoding="gzip") + gzip.compress(b"\0" * 50_000_000)),
    "an unknown packing": sends(head(Content_Encoding="zstd") + b"xx"),
    "HTML": sends(head(200, "text/html") + b"<html>welcome</html>"),
    "an empty page": sends(head(200, "application/json", Content_Length="0")),
    "an answer that is no stream": refuses(200, {"choices": [{"message": {"content": "hi"}}]}),
    "invalid UTF-8": sends(head() + b'data: {"choices": [{"index": 0, "delta": {"content": "\xff\xfe"}}]}\n\n'),
    "half a surrogate pair": streams(b'{"choices": [{"index": 0, "delta": {"content": "\\ud800"}}]}', STOP),
    "half an event": sends(head() + b'data: {"choices": [{"ind'),
    "no end": sends(head() + event(TEXT)),
    "no finish": streams(TEXT),
    "nothing said": streams(STOP),
    "null choices": streams({"choices": None}, STOP),
    "no choices": streams({"choices": []}, usage=None),
    "choices that are text": streams({"choices": "hello"}, STOP),
    "a null choice": streams({"choices": [None]}, STOP),
    "a null delta": streams({"choices": [{"index": 0, "delta": None}]}, STOP),
    "a delta that is text": streams({"choices": [{"index": 0, "delta": "hello"}]}, STOP),
    "content that is a number": streams(chunk({"content": 3}), STOP),
    "content that is a list": streams(chunk({"content": [{"type": "text", "text": "hi"}]}), STOP),
    "content that is an object": streams(chunk({"content": {"a": 1}}), STOP),
    "a finish nobody knows": streams(TEXT, chunk(finish="tired")),
    "a finish that is a number": streams(TEXT, chunk(finish=3)),
    "a model that is a number": streams({**TEXT, "model": 3}, STOP),
    "an error in the stream": streams({"error": {"message": "overloaded", "code": 500}}),
    "an event that is a list": streams([1], STOP),
    "an event that is a number": streams(3, STOP),
    "an event that is null": streams(None, STOP),
    "an event nested 20,000 deep": streams(b'{"a":' * 20_000 + b"1" + b"}" * 20_000, STOP),
    "an event that is no JSON": streams(b"{hello}", STOP),
    "tool calls that are text": streams(chunk({"tool_calls": "hello"}), STOP),
    "a tool call of nothing": _tool(),
    "a tool call without a name": _tool(function={"name": None, "arguments": "{}"}),
    "a tool nobody offered": _tool(function={"name": "rm", "arguments": "{}"}),
    "arguments that are an object": _tool(function={"name": "lookup_documents", "arguments": {"query": "x"}}),
    "arguments that are no JSON": _tool(function={"name": "lookup_documents", "arguments": "{query"}),
    "arguments nested deep": _tool(function={"name": "lookup_documents", "arguments": '{"a":' * 5000}),
    "arguments of NaN": _tool(function={"name": "lookup_documents", "arguments": '{"query": NaN, "k": 1e999}'}),
    "a call whose index is text": streams(chunk({"tool_calls": [{"index": "x", "function": {"name": "a"}}]}), STOP),
    "a thousand tool calls": streams(
        chunk(
            {
                "tool_calls": [
                    {"index": n, "id": f"t{n}", "function": {"name": "lookup_documents", "arguments": "{}"}}
                    for n in range(1000)
                ]
            }
        ),
        chunk(finish="tool_calls"),
    ),
    **{
        f"usage {name}": streams(TEXT, STOP, usage=usage)
        for name, usage in {
            "as text": {"prompt_tokens": "many", "completion_tokens": 3, "total_tokens": 0},
            "below nothing": {"prompt_tokens": -(10**9), "completion_tokens": -5, "total_tokens": 0},
            "of 400 digits": {"prompt_tokens": 10**400, "completion_tokens": 3, "total_tokens": 0},
            "not a number": {"prompt_tokens": float("nan"), "completion_tokens": float("inf"), "total_tokens": 0},
            "in halves": {"prompt_tokens": 1.5, "completion_tokens": 3, "total_tokens": 0},
            "as a list": [1, 2],
            "as nothing": {},
            "missing": None,
            "true": {"prompt_tokens": True, "completion_tokens": False, "total_tokens": 0},
        }.items()
    },
    "a reply of 5 MB": streams(chunk({"content": "é" * 2_500_000}), STOP),
    "a reply of control characters": streams(chunk({"content": "\0\x1b[2J\x9b\u202e<|im_end|>"}), STOP),
    "lines that end in \\r": sends(head() + b"data: " + json.dumps(TEXT).encode() + b"\r\rdata: [DONE]\r\r"),
}


async def _serve(listening: socket.socket) -> None:
    names, chance = list(FAULTS), random.Random(7)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(piece: bytes) -> None:
            writer.write(piece)
            await writer.drain()

        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            length = next((int(line[15:]) for line in lines if line.lower().startswith("content-length:")), 0)
            await reader.readexactly(length)
            which = lines[0].split()[1].split("/")[1]
            if which.startswith("mix"):
                which = str(chance.randrange(len(names))) if chance.random() * 100 < int(which[3:]) else "good"
            await (sends(GOOD) if which == "good" else FAULTS[names[int(which)]])(write)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(answer, sock=listening, limit=2**22) as server:
        await server.serve_forever()


class FaultyServer:
    """In a process of its own; `url(which)` is the address for a fault by its number, for `good` and for `mix20`."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        self._port = listening.getsockname()[1]
        self._process = os.fork()
        if self._process == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                asyncio.run(_serve(listening))
            finally:
                os._exit(0)
        listening.close()

    def url(self, which: object) -> str:
        return f"http://127.0.0.1:{self._port}/{which}/v1"

    def stop(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
