"""A model hub on this machine that serves one file, well or badly."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DATA = bytes(range(256)) * 4096  # 1 MiB


class Hubs(ThreadingHTTPServer):
    """State of the hub: its files, its faults and the requests it received."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubRequest)
        self.body = DATA
        self.break_after: int | None = None
        self.status = 200
        self.ranges = True
        self.tells_size = True
        self.received: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubRequest(BaseHTTPRequestHandler):
    server: Hubs

    def do_HEAD(self) -> None:
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        self.send_response(200)
        if self.server.tells_size:
            self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()

    def do_GET(self) -> None:
        hub = self.server
        wanted = self.headers.get("Range")
        hub.received.append((self.path, wanted))
        if hub.status != 200:
            self.send_error(hub.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and hub.ranges else 0
        if start >= len(hub.body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(hub.body) - 1}/{len(hub.body)}")
        self.send_header("Content-Length", str(len(hub.body) - start))
        self.end_headers()
        end = len(hub.body)
        if hub.break_after is not None:
            end, hub.break_after = start + hub.break_after, None
        self.wfile.write(hub.body[start:end])

    def log_message(self, *args: object) -> None:
        pass
