"""An MCP server for the tests, over stdio or streamable HTTP; `--mode` chooses its behaviour.

python mcp_server.py                          speaks MCP on its pipes
python mcp_server.py --http 8123 --note FILE  serves http://127.0.0.1:8123/mcp
python mcp_server.py --mode endless            speaks plain JSON-RPC without the SDK, which would not lie
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

LIARS: dict[str, Any] = {
    "good": {"name": "good", "description": "Fine.", "inputSchema": {"type": "object", "properties": {}}},
    "no schema": {"name": "bare", "description": "x"},
    "schema is text": {"name": "text", "inputSchema": "object"},
    "schema is of a list": {"name": "listed", "inputSchema": {"type": "array"}},
    "invalid schema": {"name": "invalid", "inputSchema": {"type": "object", "properties": {"a": {"type": "dict"}}}},
    "description is a number": {"name": "numbered", "description": 7, "inputSchema": {"type": "object"}},
    "twice": {"name": "good", "description": "Not fine.", "inputSchema": {"type": "object"}},
    "nameless": {"name": 5, "inputSchema": {"type": "object"}},
    "no object": "tool",
    "long description": {"name": "long", "description": "\x1b[31m" + "w" * 5_000, "inputSchema": {"type": "object"}},
}

GROWN: list[dict[str, Any]] = []
WEATHER: dict[str, Any] = {
    "name": "getForecast",
    "description": "The weather of the next days.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def serve(arguments: argparse.Namespace) -> None:  # noqa: C901  a list of tools, one after the other
    from mcp.server import MCPServer
    from mcp.server.elicitation import ElicitationResult
    from mcp.server.mcpserver import Context, Image
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.resolve import Elicit, Resolve
    from mcp_types import (
        AudioContent,
        BlobResourceContents,
        CallToolResult,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        TextResourceContents,
    )
    from pydantic import BaseModel

    server = MCPServer("ours", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers.

        A second paragraph.
        """
        return a + b

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    def person(who: str) -> dict[str, Any]:
        """A structured answer."""
        return {"name": who, "pid": os.getpid()}

    @server.tool()
    def fail(why: str) -> str:
        """Fail."""
        raise ToolError(why)

    @server.tool()
    def everything() -> CallToolResult:
        """A result of every kind."""
        data = base64.b64encode(b"x" * 30).decode()
        return CallToolResult(
            content=[
                TextContent(text="words"),
                ImageContent(data=data, mime_type="image/png"),
                AudioContent(data=data, mime_type="audio/wav"),
                ResourceLink(name="notes", uri="file:///notes.txt"),
                EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="the text of a")),
                EmbeddedResource(resource=BlobResourceContents(uri="file:///b.bin", blob=data)),
            ],
            structured_content={"answer": 42},
        )

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=b"\x89PNG", format="png")

    @server.tool()
    def long(characters: int) -> str:
        """A long answer."""
        return "x" * characters

    @server.tool()
    def count() -> int:
        """How often it was called, by a file that outlives the server."""
        note = Path(arguments.note)
        count = int(note.read_text()) + 1 if note.exists() else 1
        note.write_text(str(count))
        return count

    @server.tool()
    async def steps(ctx: Context, number: int) -> str:
        """Tell of each step."""
        for step in range(number):
            await ctx.report_progress(step + 1, number, f"step {step + 1}")
        return "done"

    @server.tool()
    async def wait(seconds: float) -> str:
        """Wait without blocking."""
        await asyncio.sleep(seconds)
        return "waited"

    @server.tool()
    async def hang() -> str:
        """Never answer, nor anything else, and ignore being told to end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)  # noqa: ASYNC251  that is the point

    @server.tool()
    def die(code: int = 3) -> str:
        """End the process at once."""
        os._exit(code)

    @server.tool()
    def spawn() -> int:
        """Start a process that outlives this one unless somebody ends the group; returns its pid."""
        return subprocess.Popen(["sleep", "600"]).pid

    @server.tool()
    def environment() -> list[str]:
        """The names of the variables that are set."""
        print("a word on stderr", file=sys.stderr, flush=True)
        return sorted(os.environ)

    @server.tool()
    async def learn(ctx: Context, called: str) -> str:
        """Have another tool from now on."""
        server.add_tool(lambda text: f"{called}: {text}", name=called, description="Learned.")
        await ctx.notify_tools_changed()
        return f"learned {called}"

    @server.tool()
    def folder(variable: str) -> str:
        """The folder it runs in, and a variable."""
        return f"{Path.cwd()} {os.environ.get(variable)}"

    class Booking(BaseModel):
        name: str = "Fenchurch"
        seats: int
        window: bool = True

    async def seats() -> Elicit[Booking]:
        return Elicit("Which seats?", Booking)

    @server.tool()
    async def book(answer: Annotated[ElicitationResult[Booking], Resolve(seats)]) -> str:
        """Ask the user for a booking."""
        return f"{answer.action} {answer.data.model_dump_json() if answer.action == 'accept' else ''}".strip()

    @server.tool()
    async def crawl(ctx: Context, seconds: float, every: float) -> str:
        """Tell of each step on the way."""
        for step in range(round(seconds / every)):
            await asyncio.sleep(every)
            await ctx.report_progress(step + 1)
        return "arrived"

    @server.resource("note://menu", description="What there is to eat.")
    def menu() -> str:
        return "soup\x1b[31m and bread"

    @server.resource("note://day/{day}")
    def day(day: str) -> str:
        return f"closed on {day}"

    @server.prompt(description="Greet somebody.")
    def greet(name: str, tone: str = "kind") -> str:
        return f"Greet {name} in a {tone} tone."

    if arguments.http:
        server.run("streamable-http", host="127.0.0.1", port=arguments.http)
    else:
        server.run("stdio")


def lie(mode: str) -> None:
    """The handshake of 2025, and then whatever `mode` says."""
    if mode == "silent":
        time.sleep(3600)
    if mode == "broken":
        sys.exit("no such luck")
    if mode == "noise":
        print("Starting up...\n{]\n[1, 2]", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if mode == "restless":
            print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
        if mode == "growing" and request["method"] == "tools/call":
            GROWN.append({**LIARS["good"], "name": f"grown_{len(GROWN) + 1}"})
            print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply(mode, request)}), flush=True)


def reply(mode: str, results: dict[str, Any]) -> dict[str, Any]:
    match results["method"]:
        case "initialize":
            row = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "liar", "version": "1"}}
            return {"result": {"protocolVersion": "2025-11-25", **row}}
        case "tools/list":
            return {"result": listing(mode, results.get("params", {}).get("cursor"))}
        case "tools/call":
            return {"result": {"content": "not a list" if mode == "nonsense" else []}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def listing(mode: str, cursor: str | None) -> dict[str, Any]:
    good = LIARS["good"]
    if mode == "ten thousand":
        return {"tools": [{**good, "name": f"tool_{number}"} for number in range(10_000)]}
    if mode == "endless":
        return {"tools": [{**good, "name": f"tool_{cursor}"}], "nextCursor": f"{cursor}x"}
    if mode == "no list":
        return {"tools": {"good": good}}
    if mode == "liars":
        return {"tools": list(LIARS.values())}
    if mode == "growing":
        return {"tools": [good, *GROWN]}
    if mode == "a hundred":
        return {"tools": [{**good, "name": f"tool_{number}"} for number in range(99)] + [WEATHER]}
    return {"tools": [good]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--note", default="note.txt")
    parser.add_argument("--mode")
    given = parser.parse_args()
    if given.mode:
        lie(given.mode)
    else:
        serve(given)
