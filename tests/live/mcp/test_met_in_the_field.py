"""Servers as people run them: odd listings, odd results, old handshakes, settings with variables."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.events import ToolRun
from agentlab.tools.mcp.tool_manager import ToolManager
from support import fake_openai, mcp_script
from support.mcp_servers import names
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow


@pytest.fixture
def served(opened: Any, tmp_path: Path) -> Any:
    """Open a server that sends the answers in the keywords."""

    async def serve(*arguments: str, config: dict[str, Any] | None = None, **script: Any) -> ToolManager:
        file = tmp_path / "script.json"
        file.write_text(json.dumps(script))
        row = {"command": sys.executable, "args": [mcp_script.__file__, str(file), *arguments], **(config or {})}
        row = row if config is None or "url" not in config else config
        return await opened({"x": row}, timeout_seconds=15.0)

    serve.starts = lambda: len((tmp_path / "script.starts").read_text())
    return serve


async def text_of_call(manager: ToolManager) -> str:
    return await call(session_with(*manager.tools), "t")


def text(*parts: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": part} for part in parts], **more}}


def error(code: Any, message: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


PRETTY = '{\n  "temp": 21.0,\n  "unit": "C"\n}'
RESULTS = {
    "banner": (text("ok"), "ok"),
    "quota": (error(-32000, "quota exceeded"), "Error: quota exceeded"),
    "words of a death": (error(-32000, "Connection closed by upstream"), "Error: Connection closed by upstream"),
    "time-out of the server": (error(-32001, "upstream timed out"), "Error: upstream timed out"),
    "invalid arguments": (error(-32602, "'path' is required"), "Error: 'path' is required"),
    "internal": (error(-32603, "internal"), "Error: internal"),
    "odd error": (error("E_QUOTA", None), "Error: an error with code E_QUOTA"),
    "no answer": ({"result": None}, "Error: it answered nothing"),
    "error of the tool": (text("ENOENT: no such file", isError=True), "Error: ENOENT: no such file"),
    "wrapped": (text("5", structuredContent={"result": 5}), "5"),
    "file": (text("the text", structuredContent={"content": "the text"}), "the text"),
    "pretty": (text(PRETTY, structuredContent={"unit": "C", "temp": 21}), PRETTY),
    "list": (text("a", "b", structuredContent={"result": ["a", "b"]}), "a\nb"),
    "summary beside data": (
        text("Found 2 files.", structuredContent={"files": ["a.txt"]}),
        'Found 2 files.\n{"files": ["a.txt"]}',
    ),
    "number in other words": (text("Took 15 ms.", structuredContent={"result": 5}), 'Took 15 ms.\n{"result": 5}'),
    "without content": ({"result": {"structuredContent": {"temp": 21}}}, '{"temp": 21}'),
    "empty": (text(), "(the result is empty)"),
    "text of null": ({"result": {"content": [{"type": "text", "text": None}, {"type": "text", "text": "ok"}]}}, "ok"),
    "unknown block": (
        {"result": {"content": [{"type": "hologram"}, {"type": "text", "text": "ok"}]}},
        "(hologram, a block that cannot be read)\nok",
    ),
    "structured list": ({"result": {"content": [], "structuredContent": [1, 2]}}, '{"result": [1, 2]}'),
    "resources": (
        {
            "result": {
                "content": [
                    {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hello"}},
                    {"type": "resource_link", "uri": "file:///b.txt", "name": "b.txt"},
                    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
                ]
            }
        },
        "file:///a.txt:\nhello\n(a link to b.txt: file:///b.txt)\n(audio, audio/wav, 3 bytes, not shown)",
    ),
}


@pytest.mark.parametrize(("answer", "expected"), RESULTS.values(), ids=RESULTS)
async def test_a_result_says_what_is_readable_in_it_and_starts_nothing_again(served, answer, expected):
    manager = await served(answer=answer, banner=["My MCP Server 1.2.0", ""])
    assert [await text_of_call(manager), await text_of_call(manager)] == [expected, expected]
    assert served.starts() == 1 and manager.problems == []


async def test_a_result_that_does_not_fit_its_own_schema_is_read(served):
    schema = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}
    pages = [{"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}]}}]
    manager = await served(pages=pages, answer={"result": {"content": [], "structuredContent": {"temp": "21"}}})
    assert await text_of_call(manager) == '{"temp": "21"}'
    manager = await served(pages=pages, answer=text("21 degrees"))
    assert await text_of_call(manager) == "21 degrees"


async def test_a_server_that_ended_is_started_again(served):
    manager = await served(answer="end")
    assert "ended before it answered" in await text_of_call(manager)
    assert "ended before it answered" in await text_of_call(manager) and served.starts() == 2


async def test_a_server_that_ends_at_an_unknown_first_message_is_started_with_the_old_handshake(served):
    manager = await served(only_old=True, answer="end")
    assert names(manager) == ["t"] and served.starts() == 2
    await text_of_call(manager)
    await text_of_call(manager)
    assert served.starts() == 3, "the old handshake is remembered"


SCHEMAS = {
    "empty": {},
    "bare": {"type": "object"},
    "null parts": {"type": "object", "properties": {}, "required": None},
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
    },
    "draft 7": {"type": "object", "properties": {"l": {"type": "array", "items": [{"type": "string"}]}}},
    "booleans": {"type": "object", "properties": {"x": True, "y": {"type": ["string", "null"]}}, "$defs": {"p": {}}},
    "nowhere": {"type": "object", "properties": {"p": {"$ref": "#/definitions/nowhere"}}},
    "own": {"$schema": "https://example.com/my", "type": "object", "properties": {"s": {"pattern": "\\p{L}+"}}},
    "group": {"type": "object", "properties": {"y": {"type": "string", "pattern": "(?<year>\\d+)"}}},
}


async def test_a_schema_of_any_dialect_keeps_its_tool(served):
    tools = [{"name": name.replace(" ", "_"), "inputSchema": schema} for name, schema in SCHEMAS.items()]
    manager = await served(pages=[{"result": {"tools": tools}}], answer=text("ok"))
    assert names(manager) == [tool["name"] for tool in tools] and manager.problems == []
    session = session_with(*manager.tools)
    arguments = {"draft_4": {"n": 1}, "draft_7": {"l": ["a"]}, "own": {"s": "?"}, "group": {"y": "no year"}}
    assert {await call(session, name, **arguments.get(name, {})) for name in names(manager)} == {"ok"}


async def test_one_bad_tool_is_named_and_removes_no_other(served):
    task = {"execution": {"taskSupport": "required"}}
    good = {"name": "good", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    tools = [{"name": "bare"}, good, {"name": "later", "inputSchema": {"type": "object"}, **task}, "no tool", good]
    manager = await served(pages=[{"result": {"tools": tools}}], answer=text("ok"))
    assert names(manager) == ["good"] and await call(session_with(*manager.tools), "good") == "ok"
    assert manager.problems == [
        "x: bare: is left out: its schema is not an object",
        "x: later: is left out: it needs tasks, which agentlab does not offer",
        "x: tool 4 is left out: it has no usable name",
        "x: good: duplicate name; the first tool is used",
    ]


def page(*tools: str, **more: Any) -> dict[str, Any]:
    return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools], **more}}


@pytest.mark.parametrize(
    ("pages", "listed", "problem"),
    [
        ([page("a", nextCursor="1"), page("b", nextCursor="2"), page("c")], ["a", "b", "c"], ""),
        ([page("a", "b", nextCursor="")], ["a", "b"], ""),
        ([page("a", "b", nextCursor="1"), page("c", nextCursor="1")], ["a", "b", "c"], "x: its listing repeats a page"),
        ([page("a", nextCursor="2"), error(-32603, "internal")], ["a"], "x: its listing is not whole: internal"),
        ([error(-32601, "Method not found")], [], "x: it lists no usable tool"),
        ([page(*(f"t{n}_{m}" for m in range(10)), nextCursor=str(n)) for n in range(20)], 128, "only the first 128"),
    ],
    ids=["pages", "empty cursor", "repeated cursor", "failing page", "no tools", "many"],
)
async def test_a_listing_is_whole_or_says_that_it_is_not(served, pages, listed, problem):
    manager = await served(pages=pages)
    assert (names(manager) == listed) if isinstance(listed, list) else len(names(manager)) == listed
    assert any(line.startswith(problem) for line in manager.problems) if problem else manager.problems == []


async def test_an_older_version_is_fine_and_one_from_the_future_names_both(served):
    manager = await served(hello={**mcp_script.HELLO, "protocolVersion": "2024-11-05"}, answer=text("ok"))
    assert await text_of_call(manager) == "ok" and manager.problems == []


async def test_a_version_from_the_future_is_named_beside_ours(served):
    manager = await served(hello={**mcp_script.HELLO, "protocolVersion": "2099-01-01"})
    (problem,) = manager.problems
    assert "2099-01-01" in problem and "2024-11-05 to 20" in problem


async def test_variables_are_filled_in_every_setting(served, monkeypatch):
    for name, value in {"KEY_A": "k", "EMPTY": "", "NESTED": "${KEY_A}", "PY": sys.executable}.items():
        monkeypatch.setenv(name, value)
    given = ["${KEY_A}/x", "${NOPE_B:-/tmp}", "${EMPTY:-d}", "${env:KEY_A}", "^a$", "$5", "{x}", "$HOME", "${NESTED}"]
    pages = [page("arguments")]
    config = {"command": "${PY}", "env": {"MINE": "${KEY_A}!", "PATH": os.environ["PATH"]}}
    manager = await served(*given, pages=pages, config=config)
    arguments, environment = json.loads(await call(session_with(*manager.tools), "arguments"))
    assert arguments == ["k/x", "/tmp", "d", "k", "^a$", "$5", "{x}", "$HOME", "${KEY_A}"]
    assert environment["MINE"] == "k!"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"env": {"A": "${NOT_THERE}"}}, "NOT_THERE"),
        ({"env": {"A": "${input:api-key}"}}, "${input:api-key}"),
        ({"args": ["${workspaceFolder}/x"]}, "workspaceFolder"),
        ({"url": "${NOT_THERE}/mcp"}, "NOT_THERE"),
        ({"url": "https://h.example/${env:NOT_THERE}"}, "NOT_THERE"),
        ({"url": "https://h.example", "headers": {"A": "B ${GITHUB_T}"}}, "GITHUB_T"),
    ],
)
async def test_a_variable_that_is_not_there_is_named_with_its_server(served, config, named):
    manager = await served(config=config)
    (problem,) = manager.problems
    assert "x cannot be reached" in problem and named in problem


LONG = "search_" + "very_" * 20 + "long"
NAMES = ["查询天气", "查询时间", LONG, f"{LONG}er", "files.read", "zażółć", "plain"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_provider_takes_is_called_all_the_same(name, tmp_path, own_home, monkeypatch):
    """The provider gets a legal and unique name for each tool, and the server gets its own name back."""
    tools = [{"name": each, "inputSchema": {"type": "object"}} for each in NAMES]
    (tmp_path / "script.json").write_text(json.dumps({"pages": [{"result": {"tools": tools}}], "answer": "name"}))
    row = {"command": sys.executable, "args": [mcp_script.__file__, str(tmp_path / "script.json")]}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"x": row}}))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if body["messages"][-1]["role"] == "tool":
            return fake_openai.text("Done.")
        offered = [tool["function"]["name"] for tool in body["tools"]]
        call = {
            "index": 0,
            "id": "c1",
            "function": {"name": offered[NAMES.index(name) - len(NAMES)], "arguments": "{}"},
        }
        return {"deltas": [{"tool_calls": [call]}], "finish": "tool_calls"}

    with fake_openai.in_a_thread(answer) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(flows=["coordinator"], model="openai/m", embedder="hashing/hashing-64") as lab:
            chat = lab.chat(documents=(), mcp=tmp_path / "servers.json")
            assert chat.say_sync("Go.").text == "Done."
        wired = [tool["function"]["name"] for tool in fake.seen[0]["tools"]]
    (run,) = [event for event in chat.trace.events if isinstance(event, ToolRun)]
    assert (run.call.name, run.output, run.error) == (name, f"called {name}", None)
    assert len(set(wired)) == len(wired) and all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", each) for each in wired)
