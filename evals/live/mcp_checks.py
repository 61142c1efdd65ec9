"""Checks of the official MCP servers, over pipes and HTTP, by `agentlab list tools`, `agentlab chat` and `al.Lab`."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
from bench import Bench, contains, free_port
from catalogue import tries

import agentlab as al
from agentlab.core.events import ToolRun


def configured(bench: Bench, *arguments: str, **entry: Any) -> str:
    return bench.configure(command=bench.program(), args=list(arguments), **entry)


def listed(bench: Bench, *names: str) -> str:
    text = bench.agentlab("list", "tools", "--mcp", "servers.json")
    contains(text, *names)
    return f"{len(text.splitlines()) - 1 - text.count('note: ')} tools"


@contextlib.contextmanager
def over_http(bench: Bench) -> Iterator[int]:
    """Run the server everything with streamable HTTP, configure its address and yield its pid."""
    port = free_port()
    command = [bench.program(), "streamableHttp"]
    with bench.running(command, "server.log", PORT=str(port), NODE_OPTIONS=bench.node_options()) as process:
        bench.wait_for(port, process, "server.log")
        bench.configure(url=f"http://127.0.0.1:{port}/mcp", timeout=10)
        yield process.pid


@tries("everything", "lists and calls tools over stdio")
def everything_stdio(bench: Bench) -> str:
    configured(bench, "stdio")
    detail = listed(bench, "echo", "get-sum", "trigger-long-running-operation")
    call = {"name": "get-sum", "arguments": {"a": 2, "b": 40}}
    bench.chat([call], "Add.")
    contains(bench.results(), "The sum of 2 and 40 is 42")
    return detail


@tries("everything", "lists and calls tools over HTTP")
def everything_http(bench: Bench) -> str:
    with over_http(bench):
        detail = listed(bench, "echo", "get-sum")
        call = {"name": "echo", "arguments": {"message": "over HTTP"}}
        bench.chat([call], "Say it.")
        contains(bench.results(), "Echo: over HTTP")
    return detail


@tries("everything", "reports progress for 36 s, with a limit of 10 s")
def everything_progress(bench: Bench) -> str:
    configured(bench, "stdio", timeout=10)
    call = {"name": "trigger-long-running-operation", "arguments": {"duration": 36, "steps": 12}}
    began = time.monotonic()
    shown = bench.chat([call], "Work.")
    contains(shown + bench.results(), "12/12", "Long running operation completed")
    return f"{time.monotonic() - began:.0f} s"


@tries("everything", "is killed between two calls and during one")
def everything_killed(bench: Bench) -> str:
    file = bench.folder / configured(bench, "stdio", timeout=10)
    replies = [{"tool_calls": [{"name": "echo", "arguments": {"message": "here"}}]}, "Done."]
    slow = {"name": "trigger-long-running-operation", "arguments": {"duration": 30, "steps": 2}}
    script = bench.folder / "killed.yaml"
    script.write_text(json.dumps({"replies": [*replies, *replies, {"tool_calls": [slow]}, "Done.", *replies]}))
    with al.Lab(flows=["tools"], model=f"scripted/{script}", embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=file)
        chat.say_sync("One.")
        kill_servers(bench)
        time.sleep(1)
        chat.say_sync("Two.")
        late = threading.Timer(2.0, kill_servers, [bench])
        late.start()
        chat.say_sync("Three.")
        late.join()
        chat.say_sync("Four.")
        results = [event.output for event in chat.trace.events if isinstance(event, ToolRun)]
    assert [text.removeprefix("Echo: ") for text in results if "here" in text] == ["here"] * 3, str(results)
    contains(results[2], "ended before it answered")
    return "started again twice"


def kill_servers(bench: Bench) -> None:
    """Kill the processes of this server that this process has started."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if bench.server.binary in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)


@tries("everything", "asks the user, who answers and declines")
def everything_asks(bench: Bench) -> str:
    configured(bench, "stdio")
    call = {"name": "trigger-elicitation-request", "arguments": {}}
    shown = bench.chat([call], "Ask me.", "Arthur", *[""] * 20)
    contains(shown, "the MCP server everything asks:")
    contains(bench.results(), "provided the requested information", "Name: Arthur")
    bench.chat([call], "Ask me.", "/no")
    contains(bench.results(), "declined")
    return f"{shown.count('/no declines')} fields"


@tries("everything", "lists and reads resources and prompts")
def everything_browsed(bench: Bench) -> str:
    configured(bench, "stdio")
    resource = "demo://resource/dynamic/text/7"
    prompt = "/prompts everything args-prompt city=Ulm"
    shown = bench.chat([], "/resources", f"/resources everything {resource}", "/prompts", prompt)
    contains(shown, f"{resource}: Resource 7: This is a plaintext resource")
    contains(shown, "args-prompt city=TEXT", "user: What's weather in Ulm?")
    return f"{shown.count('demo://resource/')} addresses"


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
    assert bench.results().count("Fenchurch") == 1, "a text is said twice"
    return detail


@tries("memory", "keeps what it is told over a restart")
def memory(bench: Bench) -> str:
    configured(bench, env={"MEMORY_FILE_PATH": str(bench.folder / "graph.jsonl")})
    detail = listed(bench, "create_entities", "search_nodes")
    cat = {"name": "Fenchurch", "entityType": "cat", "observations": ["lives in Ulm"]}
    bench.chat([{"name": "create_entities", "arguments": {"entities": [cat]}}], "Keep it.")
    search = {"name": "search_nodes", "arguments": {"query": "Ulm"}}
    bench.chat([search], "Find it.")
    contains(bench.results(), "lives in Ulm")
    return detail


@tries("time", "tells and converts times, and refuses an unknown zone")
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


@tries("fetch", "fetches a page of this machine when it may, and else says why not")
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
