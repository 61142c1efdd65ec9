"""A server on this machine that speaks OpenAI's chat completions and answers after a fixed time, as benchmarks need it.

    python evals/bench/loopback.py [--latency .05] [--chunks 12] [--allowed 0] [--minute 60] [--silent 1]

It prints its port, runs until it is ended, and answers everybody with the same dozen words, in `--chunks` pieces where
a stream is asked for. Who offers tools and has no result yet gets a call of the tool `find` first. With `--allowed` it
lets so many requests through in each `--minute` (seconds; a bucket that fills evenly), names its limits in the usual
headers, unless it is `--silent`, and refuses the others with HTTP 429.
`GET /counts` returns how many it answered and refused. It parses only what its clients send, to cost next to nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

WORDS = "An answer of a dozen words or so, as a small model gives."
USAGE = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112}
BURSTS = 10
"""Number of packets in which the pieces of a stream arrive."""


class Bucket:
    """Token bucket: `allowed` requests in `minute` seconds, at most a minute's worth, one tenth at the start."""

    def __init__(self, allowed: int, minute: float, silent: bool) -> None:
        self.allowed = allowed
        self.rate = allowed / minute
        self.silent = silent
        self._level = allowed / 10
        self._at: float | None = None

    def take(self, now: float) -> bool:
        passed = 0.0 if self._at is None else now - self._at
        self._level = min(float(self.allowed), self._level + passed * self.rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def headers(self) -> str:
        if self.silent:
            return ""
        return (
            f"x-ratelimit-limit-requests: {self.allowed}\r\nx-ratelimit-remaining-requests: {int(self._level)}\r\n"
            f"x-ratelimit-reset-requests: {(self.allowed - self._level) / self.rate:.3f}s\r\n"
        )

    def refusal(self) -> bytes:
        wait = "" if self.silent else f"retry-after: {(1 - self._level) / self.rate:.3f}\r\n"
        return response(
            b'{"error": {"message": "too many requests", "code": "rate_limit_exceeded"}}',
            f"{self.headers()}{wait}",
            "429 Too Many Requests",
        )


def response(body: bytes, headers: str = "", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def text_deltas(chunks: int) -> list[dict[str, object]]:
    words = [f"{word} " for word in WORDS.split()]
    return [{"content": words[number % len(words)]} for number in range(chunks)]


def call_deltas() -> list[dict[str, object]]:
    pieces = ['{"query"', ": ", '"off', 'side"', "}"]
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "find", "arguments": ""}}
    calls = [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
    return [{"tool_calls": [call]} for call in calls]


def packets(deltas: list[dict[str, object]], finish: str) -> list[bytes]:
    """Return the body of a stream as packets; each piece is an HTTP chunk."""
    common = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "served"}
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    rows = [{**common, "choices": choice} for choice in choices]
    rows.append({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    rows.append({**common, "choices": [], "usage": USAGE})
    texts = [f"data: {json.dumps(row)}\n\n".encode() for row in rows] + [b"data: [DONE]\n\n"]
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in texts] + [b"0\r\n\r\n"]
    size = -(-len(pieces) // BURSTS) if len(deltas) > 2 * BURSTS else len(pieces)
    return [b"".join(pieces[start : start + size]) for start in range(0, len(pieces), size)]


class Server:
    def __init__(self, latency: float, chunks: int, bucket: Bucket | None) -> None:
        self.latency = latency
        self.bucket = bucket
        self.answered = self.refused = 0
        self.first = self.last = 0.0
        """Times of the first request and the last response, by the loop's clock."""
        whole = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "served",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": WORDS}, "finish_reason": "stop"},
            ],
            "usage": USAGE,
        }
        self.whole = json.dumps(whole).encode()
        self.packets = packets(text_deltas(chunks), "stop")
        self.call = packets(call_deltas(), "tool_calls")


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length or 0):
            return
        self.received = b""
        if head.startswith(b"GET"):
            seconds = self.server.last - self.server.first
            row = {"answered": self.server.answered, "refused": self.server.refused, "seconds": seconds}
            self.transport.write(response(json.dumps(row).encode()))
            return
        bucket = self.server.bucket
        self.server.first = self.server.first or self.loop.time()
        if bucket is not None and not bucket.take(self.loop.time()):
            self.server.refused += 1
            self.transport.write(bucket.refusal())
            return
        self.server.answered += 1
        self.server.last = self.loop.time() + self.server.latency
        limits = "" if bucket is None else bucket.headers()
        if b'"stream":true' in body.replace(b" ", b""):
            head_of_stream = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{limits}"
            )
            calls = b'"tools"' in body and b'"tool_call_id"' not in body
            first, *rest = self.server.call if calls else self.server.packets
            self._later(self.server.latency, head_of_stream.encode() + b"\r\n" + first)
            for number, packet in enumerate(rest, 1):
                self._later(self.server.latency * (1 + number / len(rest)), packet)
        else:
            self._later(self.server.latency, response(self.server.whole, limits))

    def _later(self, seconds: float, data: bytes) -> None:
        self.loop.call_later(seconds, self.transport.write, data)


async def serve(arguments: argparse.Namespace) -> None:
    bucket = Bucket(arguments.allowed, arguments.minute, bool(arguments.silent)) if arguments.allowed else None
    server = Server(arguments.latency, arguments.chunks, bucket)
    listening = await asyncio.get_running_loop().create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=1000)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


@contextlib.contextmanager
def serving(**options: float) -> Iterator[str]:
    """Run the server in its own process inside this block and yield its address."""
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, str(Path(__file__)), *given], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.terminate()
        process.communicate()


def compared(result: float, target: float, *, least: bool = False) -> str:
    """Format a figure with its target; all.py lists figures that miss theirs."""
    missed = result < target if least else result > target
    return f"{result:.2f} (at {'least' if least else 'most'} {target:g}{', **missed**' if missed else ''})"


def counts(address: str) -> dict[str, float]:
    """Return the numbers of answered and refused requests, and the seconds."""
    with urllib.request.urlopen(f"{address}/counts") as text:  # noqa: S310 - our own server
        stored: dict[str, float] = json.load(text)
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--chunks", type=int, default=12)
    parser.add_argument("--allowed", type=int, default=0)
    parser.add_argument("--minute", type=float, default=60.0)
    parser.add_argument("--silent", type=int, default=0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
