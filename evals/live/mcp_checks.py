"""Checks of the official MCP servers, over pipes and HTTP, by `agentlab list tools`, `agentlab chat` and `al.Lab`."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from bench import Bench, contains, free_port
from catalogue import Check, tries

import agentlab as al
from agentlab.core.events import ToolRun


def configured(bench: Bench, *arguments: str, **entry: Any) -> str:
    return bench.configure(command=bench.program(), args=list(arguments), **entry)


def listed(bench: Bench, *names: str) -> str:
    text = bench.agentlab("list", "tools", "--mcp", "servers.json")
    contains(text, *names)
    return f"{len(text.splitlines()) - 1 - text.count('note: ')} tools"


@contextlib.contextmanager
def over_pipes(bench: Bench) -> Iterator[None]:
    """Configure the server everything as a process that the client starts."""
    configured(bench, "stdio", timeout=10)
    yield


@contextlib.contextmanager
def over_http(bench: Bench, port: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server everything with streamable HTTP, configure its address and yield its process."""
    port = port or free_port()
    command = [bench.program(), "streamableHttp"]
    with bench.running(command, "server.log", PORT=str(port), NODE_OPTIONS=bench.node_options()) as process:
        bench.wait_for(port, process, "server.log")
        bench.configure(url=f"http://127.0.0.1:{port}/mcp", timeout=10)
        yield process


def tools(bench: Bench) -> str:
    detail = listed(bench, "echo", "get-sum", "trigger-long-running-operation")
    bench.chat([{"name": "get-sum", "arguments": {"a": 2, "b": 40}}], "Add.")
    contains(bench.results(), "The sum of 2 and 40 is 42")
    return detail


def progress(bench: Bench) -> str:
    call = {"name": "trigger-long-running-operation", "arguments": {"duration": 36, "steps": 12}}
    started = time.monotonic()
    screen = bench.chat([call], "Work.")
    contains(screen + bench.results(), "12/12", "Long running operation completed")
    return f"{time.monotonic() - started:.0f} s"


def question(bench: Bench) -> str:
    call = {"name": "trigger-elicitation-request", "arguments": {}}
    screen = " ".join(bench.chat([call], "Ask me.", "Arthur", *[""] * 20).split())
    contains(screen, "the MCP server everything asks:")
    contains(bench.results(), "provided the requested information", "Name: Arthur")
    bench.chat([call], "Ask me.", "/no")
    contains(bench.results(), "declined")
    return f"{screen.count('/no declines')} fields"


def browsing(bench: Bench) -> str:
    resource = "demo://resource/dynamic/text/7"
    prompt = "/prompts everything args-prompt city=Ulm"
    screen = bench.chat([], "/resources", f"/resources everything {resource}", "/prompts", prompt)
    contains(screen, f"{resource}: Resource 7: This is a plaintext resource")
    contains(screen, "args-prompt city=TEXT", "user: What's weather in Ulm?")
    return f"{screen.count('demo://resource/')} addresses"


EVERYTHING = {
    "lists and calls tools": tools,
    "reports progress for 36 s, with a limit of 10 s": progress,
    "asks the user, who answers and declines": question,
    "lists and reads resources and prompts": browsing,
}
for what, check in EVERYTHING.items():

    def by_pipes(bench: Bench, check: Check = check) -> str:
        with over_pipes(bench):
            return check(bench)

    def by_http(bench: Bench, check: Check = check) -> str:
        with over_http(bench):
            return check(bench)

    tries("everything", f"{what} over stdio")(by_pipes)
    tries("everything", f"{what} over HTTP")(by_http)


def chatting(bench: Bench, *between: Callable[[], object]) -> list[str]:
    """Call the tool echo, do each thing between two calls, and return the results of all calls."""
    echo = {"tool_calls": [{"name": "echo", "arguments": {"message": "here"}}]}
    script = bench.folder / "killed.yaml"
    script.write_text(json.dumps({"replies": [echo, "Done."], "loop": True}))
    with al.Lab(flows=["tools"], model=f"scripted/{script}", embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=bench.folder / "servers.json")
        chat.say_sync("One.")
        for act in between:
            act()
            chat.say_sync("Another.")
        return [event.output for event in chat.trace.events if isinstance(event, ToolRun)]


@tries("everything", "is killed and answers the next call over stdio")
def killed_with_pipes(bench: Bench) -> str:
    with over_pipes(bench):
        results = chatting(bench, lambda: (kill_servers(bench), time.sleep(1)), lambda: kill_servers(bench), str)
    assert results[1] == results[3] == "Echo: here", str(results)
    return f"{results.count('Echo: here')} of {len(results)} calls"


@tries("everything", "is killed and answers the next call over HTTP")
def killed_with_http(bench: Bench) -> str:
    port = free_port()
    with contextlib.ExitStack() as servers:
        process = servers.enter_context(over_http(bench, port))

        def restart() -> None:
            process.kill()
            process.wait()
            servers.enter_context(over_http(bench, port))

        results = chatting(bench, restart)
    assert results == ["Echo: here"] * 2, str(results)
    return "its session is opened again"


def kill_servers(bench: Bench) -> None:
    """Kill the processes of this server that this process has started."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if bench.server.binary in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)


@tries("filesystem", "lists, reads and writes files in its folder and none outside")
def filesystem(bench: Bench) -> str:
    folder = bench.folder / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("Fenchurch is a cat.")
    configured(bench, "${LIVE_FOLDER}")
    os.environ["LIVE_FOLDER"] = str(folder)
    detail = listed(bench, "read_text_file", "write_file")
    calls = [
        {"name": "read_text_file", "arguments": {"path": str(folder / "a.txt")}},
        {"name": "write_file", "arguments": {"path": str(folder / "b.txt"), "content": "Ulm"}},
        {"name": "read_text_file", "arguments": {"path": "/etc/hostname"}},
    ]
    bench.chat(calls, "Read.", "Write.", "Read more.")
    contains(bench.results(), "Fenchurch is a cat.", "Access denied")
    assert (folder / "b.txt").read_text() == "Ulm", "the file was not written"
    assert bench.results().count("Fenchurch") == 1, "a text is printed twice"
    return detail


@tries("memory", "keeps its facts over a restart")
def memory(bench: Bench) -> str:
    configured(bench, env={"MEMORY_FILE_PATH": str(bench.folder / "graph.jsonl")})
    detail = listed(bench, "create_entities", "search_nodes")
    cat = {"name": "Fenchurch", "entityType": "cat", "observations": ["lives in Ulm"]}
    bench.chat([{"name": "create_entities", "arguments": {"entities": [cat]}}], "Keep it.")
    search = {"name": "search_nodes", "arguments": {"query": "Ulm"}}
    bench.chat([search], "Find it.")
    contains(bench.results(), "lives in Ulm")
    return detail


@tries("time", "returns and converts times, and rejects an unknown zone")
def clock(bench: Bench) -> str:
    configured(bench)
    detail = listed(bench, "get_current_time", "convert_time")
    noon = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    calls = [
        {"name": "get_current_time", "arguments": {"timezone": "Europe/Berlin"}},
        {"name": "convert_time", "arguments": noon},
        {"name": "get_current_time", "arguments": {"timezone": "Mars/Olympus"}},
    ]
    bench.chat(calls, "Now?", "Then?", "There?")
    contains(bench.results(), "day_of_week", "+8.0h", "Mars/Olympus")
    return detail


@tries("fetch", "fetches a page of this machine if allowed, and reports a refusal")
def fetch(bench: Bench) -> str:
    page = b"<html><head><title>Cats</title></head><body><article><p>Fenchurch sleeps.</p></article></body></html>"

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/robots.txt" else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        call = {"name": "fetch", "arguments": {"url": f"http://127.0.0.1:{web.server_address[1]}/cats"}}
        configured(bench, "--allow-private-ips")
        detail = listed(bench, "fetch")
        bench.chat([call], "Fetch.")
        contains(bench.results(), "Fenchurch sleeps.")
        configured(bench)
        bench.chat([call], "Fetch.")
        contains(bench.results(), "Refused to fetch")
        web.shutdown()
    return detail
