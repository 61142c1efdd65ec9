"""MCP servers as tools: what they list and answer, what they are believed, how they end, and replays without them."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mcp_server import LIARS
from test_tools import call, session_with

import agentlab as al
from agentlab.core.errors import ConfigError, MissingExtra, NotRecorded, RecordingError, ToolError
from agentlab.core.events import Fetch, ToolRun
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.models.scripted import Scripted
from agentlab.tools.mcp import transports as _mcp_transports
from agentlab.tools.mcp.client import LONGEST, McpServer
from agentlab.tools.mcp.config import ServerConfig, server_config
from agentlab.tools.mcp.folder import ToolManager, describe
from agentlab.tools.mcp.listing import MOST, Refused, accepted, listing_row, sound_schema
from agentlab.tools.mcp.registry import instruction_of
from agentlab.wire.gateway import Recorder
from agentlab.wire.recordings import KNOWN_SECRETS, Recordings

SERVER = Path(__file__).with_name("mcp_server.py")
OURS = {"command": sys.executable, "args": [str(SERVER)]}
ALL = [
    *("add", "echo", "person", "fail", "everything", "picture", "long", "count", "steps", "wait", "hang", "die"),
    *("spawn", "environment", "folder"),
]
Open = Callable[..., Awaitable[ToolManager]]


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_mcp_transports, "GRACE", 0.3)
    known = set(KNOWN_SECRETS)
    yield
    KNOWN_SECRETS.clear()
    KNOWN_SECRETS.update(known)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Writes `{name: entry}` as a configuration and opens it; what was opened is closed in the end."""
    managers = []

    async def opening(servers: dict[str, Any], **options: Any) -> ToolManager:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        managers.append(await ToolManager.from_config(file, **{"timeout_seconds": 20.0, **options}))
        return managers[-1]

    yield opening
    for manager in managers:
        await manager.close()
    assert not _mcp_transports._GROUPS


@pytest.fixture
async def ours(opened: Open) -> ToolManager:
    return await opened({"ours": OURS})


def server_of(manager: ToolManager) -> McpServer:
    return manager._servers[0]


def liar(mode: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), "--mode", mode]}


def names(manager: ToolManager) -> list[str]:
    return [tool.spec.name for tool in manager.tools]


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that nobody has reaped yet does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def gone(pid: int) -> bool:
    for _ in range(200):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


# Discovery, schemas and results.


async def test_a_server_lists_its_tools_and_they_are_kept(ours, tmp_path):
    assert names(ours) == ALL and ours.problems == []
    add = ours.tools[0].spec
    assert add.description.split() == ["Add", "two", "numbers.", "A", "second", "paragraph."]
    assert add.parameters["required"] == ["a", "b"] and add.parameters["properties"]["a"]["type"] == "integer"
    assert instruction_of(ours.tools[1]) == "Write a JSON object with:\n- text (string)"
    kept = json.loads((tmp_path / "mcp.tools.json").read_text())
    assert (kept["format"], list(kept["servers"])) == (1, ["ours"])
    assert kept["servers"]["ours"]["tools"][0] == listing_row(add)
    table = describe(ours).split("\n")
    assert table[0].split() == ["SERVER", "TOOL", "PARAMETERS", "DESCRIPTION"]
    assert table[1].split(maxsplit=4) == ["ours", "add", "a,", "b", "Add two numbers."]
    assert next(line for line in table if " die " in line).split()[2] == "code?"


async def test_results_of_every_kind_become_text(ours):
    session = session_with(*ours.tools)
    assert await call(session, "add", a=2, b=3) == "5"
    assert await call(session, "echo", text="{zwei} é\n☃") == "{zwei} é\n☃"
    assert json.loads(await call(session, "person", who="Ann"))["name"] == "Ann"
    assert await call(session, "everything") == (
        "words\n(image, image/png, 30 bytes, not shown)\n(audio, audio/wav, 30 bytes, not shown)\n"
        "(a link to notes: file:///notes.txt)\nfile:///a.txt:\nthe text of a\n"
        '(file:///b.bin, of unknown type, 30 bytes, not shown)\n{"answer": 42}'
    )
    assert (await call(session, "picture")).startswith("(image, image/png, ")
    assert await call(session, "long", characters=LONGEST) == "x" * LONGEST
    cut = await call(session, "long", characters=150_000)
    assert cut == "x" * LONGEST + "\n(cut: the result has 150,000 characters, the first 100,000 are shown)"
    assert await call(session, "fail", why="no luck") == "Error: Error executing tool fail: no luck"
    assert await call(session, "add", a="two", b=3) == "Error: add: a: 'two' is not of type 'integer'"
    errors = [event.error for event in session.trace.events if isinstance(event, ToolRun) and event.error]
    assert len(errors) == 2
    session.trace.check()


async def test_many_conversations_call_at_once(ours):
    sessions = [session_with(*ours.tools) for _ in range(20)]
    calls = (call(session, "echo", text=str(number)) for number, session in enumerate(sessions))
    assert await asyncio.gather(*calls) == [str(number) for number in range(20)]


async def test_a_server_says_how_far_it_is_at_once_and_the_trace_with_the_answer(opened):
    told = []
    manager = await opened({"ours": OURS}, on_progress=lambda *words: told.append(words))
    session = session_with(*manager.tools)
    assert await call(session, "steps", number=3) == "done"
    assert told == [("ours", "steps", f"{step}/3 step {step}") for step in (1, 2, 3)]
    notices = [event for event in session.trace.events if event.kind == "notice"]
    assert [event.text for event in notices] == [f"{step}/3 step {step}" for step in (1, 2, 3)]
    assert {event.data["title"] for event in notices} == {"tool steps: progress"}


async def test_a_server_of_others_from_a_package_index(opened):
    command = Path(sysconfig.get_path("scripts")) / "mcp-server-time"
    manager = await opened({"time": {"command": str(command), "args": ["--local-timezone", "Europe/Oslo"]}})
    assert names(manager) == ["get_current_time", "convert_time"] and manager.problems == []
    session = session_with(*manager.tools)
    asked = {"source_timezone": "Europe/Oslo", "time": "16:30", "target_timezone": "Asia/Tokyo"}
    converted = json.loads(await call(session, "convert_time", **asked))
    assert converted["source"]["timezone"] == "Europe/Oslo" and converted["target"]["timezone"] == "Asia/Tokyo"
    assert "Mars" in await call(session, "get_current_time", timezone="Mars/Base")
    assert (await call(session, "get_current_time")).endswith("'timezone' is a required property")


async def test_a_server_knows_little_of_our_environment_and_writes_to_its_own_log(opened, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OPENAI_API_KEY", "a-very-secret-value")
    monkeypatch.setenv("WHERE", "north")
    manager = await opened({"ours": {**OURS, "env": {"PLACE": "${WHERE}!"}}})
    session = session_with(*manager.tools)
    variables = (await call(session, "environment")).split("\n")
    assert "PLACE" in variables and "PATH" in variables and "WHERE" not in variables
    assert not any("KEY" in name for name in variables)
    assert await call(session, "folder", variable="PLACE") == f"{tmp_path} north!"
    assert (tmp_path / "mcp-logs" / "ours.log").read_text() == "a word on stderr\n"
    assert capfd.readouterr().err == ""


async def test_a_command_is_looked_for_beside_its_configuration_and_no_shell_reads_it(opened, tmp_path):
    script = tmp_path / "bin" / "server"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" "$@"\n')
    script.chmod(0o755)
    assert "add" in names(await opened({"ours": {"command": "./bin/server"}}))
    manager = await opened({"gone": {"command": "no-such-command; touch pwned"}, "none": {"command": "./none"}})
    assert manager.tools == () and not (tmp_path / "pwned").exists()
    assert manager.problems == [
        "the MCP server gone cannot be reached (no-such-command; touch pwned: No such file or directory)",
        f"the MCP server none cannot be reached ({tmp_path}/none: No such file or directory)",
    ]


# Time limits, death and return.


async def test_a_call_that_takes_too_long_is_an_error_and_the_next_one_works(ours):
    session = session_with(*ours.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    server = server_of(ours)
    hung = server.pid
    server._seconds = 0.3
    told = await call(session, "hang")
    assert told == "Error: hang: the MCP server ours did not answer within 0.3 seconds"
    assert hung is not None and await gone(hung), "it is killed, though it ignores being told to end"
    server._seconds = 20.0
    assert await call(session, "add", a=1, b=2) == "3"
    assert server.pid not in (None, hung)


async def test_a_slow_call_does_not_end_those_of_others(ours):
    slow, other = session_with(*ours.tools), session_with(*ours.tools)
    await call(slow, "add", a=1, b=1)
    server = server_of(ours)
    waiting = asyncio.create_task(call(other, "wait", seconds=0.5))
    await asyncio.sleep(0.05)
    server._seconds = 0.1
    assert "did not answer within 0.1 seconds" in await call(slow, "wait", seconds=60)
    assert await waiting == "waited"


async def test_a_server_that_dies_is_started_again(ours):
    session = session_with(*ours.tools)
    first = json.loads(await call(session, "person", who="a"))["pid"]
    told = await call(session, "die")
    assert told == "Error: die: the MCP server ours ended before it answered; it is started again for the next call"
    second = json.loads(await call(session, "person", who="b"))["pid"]
    assert second != first
    life = server_of(ours)._life
    os.kill(second, 9)
    assert await gone(second)
    await asyncio.wait_for(life.condition.over.wait(), 5)
    assert json.loads(await call(session, "person", who="c"))["pid"] not in (first, second)


async def test_a_call_that_is_given_up_leaves_the_server_to_the_others(ours):
    session = session_with(*ours.tools)
    pid = json.loads(await call(session, "person", who="a"))["pid"]
    waiting = asyncio.create_task(call(session, "wait", seconds=60))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert json.loads(await call(session, "person", who="b"))["pid"] == pid


async def test_nothing_is_left_of_a_server_when_it_is_closed(ours):
    session = session_with(*ours.tools)
    child = int(await call(session, "spawn"))
    pid = server_of(ours).pid
    assert is_alive(pid) and is_alive(child)
    await ours.close()
    assert await gone(pid) and await gone(child)
    assert await call(session, "add", a=1, b=1) == "2", "a tool that is called after all starts its server again"
    await ours.close()
    await ours.close()


def test_nothing_is_left_of_a_server_when_nobody_closes_it(tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"quiet": liar("stubborn")}}))
    script = """if True:
        import asyncio, os, sys
        from pathlib import Path
        from agentlab.tools.mcp.folder import ToolManager

        async def main():
            manager = await ToolManager.from_config(Path("mcp.json"))
            print(manager._servers[0].pid, flush=True)
            sys.stdout = None
            raise SystemExit

        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        except SystemExit:
            pass
        """
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip().isdigit(), ended.stderr
    assert not is_alive(int(ended.stdout))


async def test_servers_that_do_not_come_up_keep_nobody_from_loading(opened, tmp_path):
    servers = {mode: liar(mode) for mode in ("silent", "broken", "no list", "noise")}
    manager = await opened(servers, timeout_seconds=2.5)
    assert names(manager) == ["good"]
    log = tmp_path / "mcp-logs" / "broken.log"
    assert manager.problems == [
        "the MCP server silent cannot be reached (no answer within 2.5 seconds)",
        f"the MCP server broken cannot be reached (it ended with exit code 1; see {log})",
        "the MCP server no list cannot be reached (what it says does not follow the protocol)",
    ]
    assert log.read_text() == "no such luck\n"
    assert await call(session_with(*manager.tools), "good") == ""


@pytest.mark.parametrize(
    ("mode", "told"),
    {
        "nonsense": "the answer of the MCP server bad cannot be used (ValidationError)",
        "flood": "the MCP server bad ended before it answered; it is started again for the next call",
    }.items(),
)
async def test_answers_that_are_none_are_errors(opened, mode, told):
    manager = await opened({"bad": liar(mode)})
    assert await call(session_with(*manager.tools), "good") == f"Error: good: {told}"


# Liars.


def test_what_a_server_lists_is_defused_or_refused():
    specs, problems = accepted("s", list(LIARS.values()))
    assert [spec.name for spec in specs] == ["good", "numbered", "long"]
    assert [spec.description[:5] for spec in specs] == ["Fine.", "", "[31mw"]
    assert len(specs[2].description) == 2_000
    assert problems == (
        "s: bare: is left out: its schema is not an object",
        "s: text: is left out: its schema is not an object",
        "s: listed: is left out: its schema is not one of an object",
        "s: invalid: is left out: its schema is not valid: 'dict' is not valid under any of the given schemas",
        "s: numbered: its description is no text and is left out",
        "s: good: is listed twice; the first counts",
        "s: tool 8 is left out: it has no name that can be used",
        "s: tool 9 is left out: it has no name that can be used",
        "s: long: its description is cut to 2,000 visible characters",
    )
    assert accepted("s", [listing_row(spec) for spec in specs]) == (specs, ()), "what was accepted once is as it stands"


@pytest.mark.parametrize("mode", ["liars", "ten thousand", "endless"])
async def test_servers_that_lie_are_taken_for_what_they_are(opened, mode):
    manager = await opened({"liar": liar(mode)})
    if mode == "liars":
        assert names(manager) == ["good", "numbered", "long"] and len(manager.problems) == 9
    elif mode == "ten thousand":
        assert len(manager.tools) == MOST
        assert manager.problems == ["liar: it lists 10,000 tools or more; the first 200 are taken"]
    else:
        assert len(manager.tools) == 50
    assert await call(session_with(*manager.tools), names(manager)[0]) == ""
    again = await opened({"liar": liar(mode)})
    assert (names(again), again.problems) == (names(manager), manager.problems)


def test_a_schema_is_refused_if_it_is_none_or_too_much():
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"properties": {"a": nested}}
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_000)}
    for schema, reason in (
        (None, "its schema is not an object"),
        ([], "its schema is not an object"),
        ({"type": "string"}, "its schema is not one of an object"),
        ({"type": ["object", "null"]}, "its schema is not one of an object"),
        (nested, "its schema is nested more than 50 deep"),
        ({"enum": ["x" * 60_000]}, "its schema has 60,0"),
        ({"$defs": doubling, "$ref": "#/$defs/d0"}, "its schema multiplies itself by references"),
        ({"$ref": "#/$defs/d0", "$defs": chain}, "its schema refers to itself in too long a chain"),
        ({"properties": []}, "its schema is not valid"),
        ({"required": "a"}, "its schema is not valid"),
        ({"properties": {"a": {"pattern": "("}}}, "its schema is not valid"),
        ({"default": 10**5_000}, "its schema is not JSON"),
        ({"default": {1}}, "its schema is not JSON"),
    ):
        with pytest.raises(Refused) as refusal:
            sound_schema(schema)
        assert str(refusal.value).startswith(reason), schema if len(str(schema)) < 200 else reason


def test_a_schema_is_mended_where_it_can_be():
    tree = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"root": {"$ref": "#/$defs/Node"}, "$ref": {"type": "string"}, "pattern": {"type": "string"}},
        "$defs": {"Node": {"type": "object", "properties": {"inner": {"items": {"$ref": "#/$defs/Node"}}}}},
    }
    schema, notes = sound_schema(tree)
    assert notes == ["its schema refers to itself; below the first level nothing is checked"]
    assert "$schema" not in schema and set(schema["properties"]) == {"root", "$ref", "pattern"}
    spec = ToolSpec(name="t", description="", parameters=schema)
    check_arguments(spec, {"root": {"inner": [{"inner": [1]}]}, "$ref": "x", "pattern": "("})
    with pytest.raises(ToolError, match="root: 5 is not of type 'object'"):
        check_arguments(spec, {"root": 5})

    schema, notes = sound_schema({"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}, "b": {"$ref": "#/no/where"}}})
    assert notes == ["its schema refers to what is not in it; nothing is checked there"]
    assert schema["properties"] == {"a": {}, "b": {}}
    assert sound_schema({"$ref": "#"})[0] == {"type": "object"}
    assert sound_schema({"allOf": [{"$ref": "#"}]})[0] == {"type": "object", "allOf": [{}]}
    assert sound_schema({})[0] == {"type": "object"}
    described = {"properties": {"a": {"description": "\x00safe\u202e", "title": 3, "type": "string"}}}
    assert sound_schema(described)[0]["properties"]["a"] == {"description": "safe", "type": "string"}


def test_no_schema_and_no_arguments_make_the_check_take_for_ever():
    schema, notes = sound_schema(
        {
            "properties": {
                "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
                "evil": {"type": "string", "pattern": "^(a+)+$"},
                "worse": {"type": "string", "pattern": "a*a*a*a*a*a*b"},
            },
            "patternProperties": {"^(x|x)*$": {"type": "integer"}},
            "anyOf": [{"$ref": "#"}, {"$ref": "#"}],
            "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        }
    )
    assert notes == [
        "a pattern that could take for ever to match is not checked",
        "its schema refers to itself; below the first level nothing is checked",
    ]
    assert [("pattern" in row) for row in schema["properties"].values()] == [True, False, False]
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    began = time.perf_counter()
    check_arguments(ToolSpec(name="t", description="", parameters=schema), {"evil": "a" * 5_000 + "!", "x": deep})
    assert time.perf_counter() - began < 2


# Names.


async def test_a_name_that_two_servers_have_gets_theirs_in_front(opened, tmp_path):
    good = liar("plain")
    manager = await opened({"a": good, "b": good, "c": {**good, "disabled": True}})
    assert names(manager) == ["a_good", "b_good"]
    assert manager.problems == [
        f"{server}: good: another server has a tool of that name; it is called {server}_good here" for server in "ab"
    ]
    session = session_with(*manager.tools)
    await call(session, "b_good")
    (fetch,) = (event for event in session.trace.events if isinstance(event, Fetch))
    assert (fetch.source, fetch.facts) == ("mcp", {"server": "b", "tool": "good", "arguments": {}})
    again = await opened({"a": good, "b": good})
    assert (names(again), again.problems) == (names(manager), manager.problems)


# Record and replay.


def recorder(folder: Path, mode: str) -> Recorder:
    return Recorder(mode, Recordings.open(folder, "mcp", write=mode != "replay"))


async def test_calls_are_recorded_and_replayed_without_any_server(opened, tmp_path, monkeypatch):
    counting = {**OURS, "args": [*OURS["args"], "--note", str(tmp_path / "note.txt")]}
    live = await opened({"ours": counting})
    recorded = session_with(*live.tools, recorder=recorder(tmp_path / "rec", "record"))

    async def play(session: Any) -> list[str]:
        said = [await call(session, "count"), await call(session, "count"), await call(session, "echo", text="a")]
        return [*said, await call(session, "fail", why="x"), await call(session, "count")]

    answers = await play(recorded)
    assert answers == ["1", "2", "a", "Error: Error executing tool fail: x", "3"], "asked again, it is called again"
    rows = [json.loads(line) for line in (tmp_path / "rec" / "mcp.jsonl").read_text().splitlines()]
    facts = [row["facts"] for row in rows if row["kind"] == "result"]
    assert [asked.get("repeat", 0) for asked in facts] == [0, 1, 0, 0, 2]
    await live.close()

    monkeypatch.setitem(sys.modules, "mcp", None)
    replayed = await opened({"ours": counting})
    assert [t.spec for t in replayed.tools] == [t.spec for t in live.tools]
    session = session_with(*replayed.tools, recorder=recorder(tmp_path / "rec", "replay"))
    assert await play(session) == answers
    assert server_of(replayed)._life is None and (tmp_path / "note.txt").read_text() == "3"
    fetches = [event for event in session.trace.events if isinstance(event, Fetch)]
    assert {event.origin for event in fetches} == {"replay"}
    assert [event.kind for event in session.trace.events] == [event.kind for event in recorded.trace.events]
    assert session.trace.latency(0) == recorded.trace.latency(0)
    with pytest.raises(NotRecorded, match="no mcp is recorded for"):
        await call(session, "echo", text="another")


async def test_a_failure_to_answer_is_replayed_too(opened, tmp_path, monkeypatch):
    live = await opened({"ours": OURS})
    recorded = session_with(*live.tools, recorder=recorder(tmp_path / "rec", "record"))

    async def play(session: Any) -> list[str]:
        return [await call(session, "die"), await call(session, "die"), await call(session, "echo", text="a")]

    answers = await play(recorded)
    assert "ended before it answered" in answers[0] and answers[2] == "a"
    assert server_of(live).pid is not None, "asked again, the server was started again"
    await live.close()

    monkeypatch.setitem(sys.modules, "mcp", None)
    session = session_with(*(await opened({"ours": OURS})).tools, recorder=recorder(tmp_path / "rec", "replay"))
    assert await play(session) == answers
    assert [getattr(e, "error", None) for e in session.trace.events] == [
        getattr(e, "error", None) for e in recorded.trace.events
    ]
    assert session.trace.latency(0) == recorded.trace.latency(0) > 0


async def test_a_server_that_lists_something_else_than_before_is_told_of(opened, tmp_path):
    first = await opened({"ours": OURS})
    await first.close()
    file = tmp_path / "mcp.tools.json"
    kept = json.loads(file.read_text())
    tools = kept["servers"]["ours"]["tools"]
    tools[0]["description"] = "As it was."
    tools[1]["name"] = "shout"
    file.write_text(json.dumps(kept))

    manager = await opened({"ours": OURS})
    assert names(manager)[:2] == ["add", "shout"] and manager.problems == []
    session = session_with(*manager.tools)
    assert await call(session, "add", a=1, b=1) == "2"
    told = (
        "ours: it no longer lists what mcp.tools.json keeps (new: echo; gone: shout; changed: add);"
        " refresh to take it over"
    )
    assert manager.problems == [told]
    assert await call(session, "shout", text="x") == "Error: Unknown tool: shout"
    assert names(manager)[:2] == ["add", "shout"], "a run keeps its tools to its end"
    await manager.close()
    assert names(await opened({"ours": OURS}, refresh=True)) == names(first)
    assert json.loads(file.read_text())["servers"]["ours"]["tools"][1]["name"] == "echo"
    broken = {"ours": {"command": "./none"}}
    assert (await opened(broken)).tools == (), "an entry that was changed is another server"


async def test_a_server_that_is_away_at_a_refresh_has_the_tools_it_listed_before(opened, tmp_path):
    script = tmp_path / "server"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" --mode plain\n')
    script.chmod(0o755)
    await opened({"ours": {"command": "./server"}})
    script.unlink()
    manager = await opened({"ours": {"command": "./server"}}, refresh=True)
    assert names(manager) == ["good"]
    assert manager.problems[0].endswith("No such file or directory); its tools are those it listed before")
    assert (await call(session_with(*manager.tools), "good")).startswith("Error: the MCP server ours cannot be reached")


async def test_without_the_package_a_listing_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"MCP servers needs an extra: pip install 'agentlab-harness\[mcp\]'"):
        await opened({"ours": OURS})


def test_agentlab_stays_light():
    check = "import sys, agentlab, agentlab.tools.mcp.folder; assert not {'mcp', 'httpx2', 'anyio'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


# Streamable HTTP.


class OverHttp:
    """Our server on a port of this machine, in a process that can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVER), "--http", str(self.port)], cwd=self._folder)
        for _ in range(1_500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            assert self._process.poll() is None
            time.sleep(0.01)
        raise AssertionError("the server does not come up")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def over_http(tmp_path: Path) -> Iterator[OverHttp]:
    server = OverHttp(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_remote_server_is_listed_called_and_found_again(opened, over_http):
    told = []
    manager = await opened({"far": {"url": over_http.url}}, on_progress=lambda *words: told.append(words))
    assert names(manager) == ALL and manager.problems == []
    session = session_with(*manager.tools)
    assert await call(session, "add", a=2, b=3) == "5"
    assert await call(session, "steps", number=2) == "done" and len(told) == 2
    assert await call(session, "fail", why="no luck") == "Error: Error executing tool fail: no luck"
    assert len(await call(session, "long", characters=LONGEST)) == LONGEST
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
    """No MCP server at all: sends elsewhere, refuses, or answers without an end."""

    seen: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, dict(self.headers)))
        if self.path == "/away":
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/secret")
        elif self.path == "/packed":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", "gzip")
        elif self.path == "/big":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(40):
                    self.wfile.write(b" " * 1_000_000)
            return
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


async def test_addresses_that_are_no_server_are_problems_and_redirects_lead_nowhere(opened, web, monkeypatch):
    monkeypatch.setenv("FAR_KEY", "a-very-secret-value")
    headers = {"Authorization": "Bearer ${FAR_KEY}"}
    pages = ("away", "refused", "big", "packed")
    manager = await opened({page: {"url": f"{web}/{page}", "headers": headers} for page in pages})
    assert manager.tools == () and len(manager.problems) == 4
    assert "Redirect to http://localhost:" in manager.problems[0] and "not followed" in manager.problems[0]
    assert manager.problems[1].endswith("cannot be reached (Server returned an error response (HTTP 403))")
    assert "more than 32,000,000 bytes" in manager.problems[2] and "(StreamError" in manager.problems[3]
    assert "/secret" not in {path for path, _ in Web.seen}
    assert {sent["Authorization"] for _, sent in Web.seen} == {"Bearer a-very-secret-value"}
    assert not any("a-very-secret-value" in problem for problem in manager.problems)


async def test_no_recording_keeps_the_key_of_a_server(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("PLACE", "a-very-hidden-value")
    manager = await opened({"ours": {**OURS, "env": {"MAP_TOKEN": "${PLACE}", "HOME": "/somewhere/else"}}})
    session = session_with(*manager.tools, recorder=recorder(tmp_path / "rec", "record"))
    with pytest.raises(RecordingError, match="holds the value of"):
        await call(session, "folder", variable="MAP_TOKEN")
    assert "/somewhere/else" in await call(session, "folder", variable="HOME")
    assert "a-very-hidden-value" not in (tmp_path / "mcp.tools.json").read_text()


async def test_a_variable_that_is_not_set_is_named(opened):
    manager = await opened({"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${NOT_SET_AT_ALL}"}}})
    assert manager.problems == [
        "the MCP server far cannot be reached (X-Key needs the environment variable NOT_SET_AT_ALL, which is not set)"
    ]


# The data folder, local tools and bad configurations.

DICE = """
NAME = "dice"
DESCRIPTION = "Roll a die."
PARAMETERS = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}

def execute(arguments):
    if arguments["sides"] == 0:
        raise ValueError("no sides")
    return {"rolled": arguments["sides"]}
"""
SLEEPY = """
import asyncio
name, description, parameters = "sleepy", "Sleep.", {"properties": {"seconds": {"type": "number"}}}

async def execute(arguments):
    await asyncio.sleep(arguments["seconds"])
"""
BUILT = """
from agentlab.core.messages import ToolSpec

class Add:
    spec = ToolSpec(name="good", description="Ours.", parameters={"type": "object"})
    instruction = "Just call it."
    def run(self, arguments, session):
        return f"at {session.now:%H:%M}"

def build():
    return Add()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("tools", "mcp-servers", "remote-mcp-servers"):
        (folder / name).mkdir(parents=True)
    return folder


async def test_a_data_folder_holds_local_tools_and_servers_of_both_kinds(data, over_http):
    for name, source in {"dice": DICE, "sleepy": SLEEPY, "built": BUILT, "_helper": "1/0"}.items():
        (data / "tools" / f"{name}.py").write_text(source)
    (data / "mcp-servers" / "near.json").write_text(json.dumps(liar("plain")))
    (data / "remote-mcp-servers" / "far.json").write_text(json.dumps({"url": over_http.url, "timeout": 3}))
    async with await ToolManager.open(data, timeout_seconds=20.0) as manager:
        assert names(manager) == ["good", "dice", "sleepy", "near_good", *ALL]
        assert manager.problems == [
            "far: 'timeout' in far.json is not known and ignored",
            "near: good: built has a tool of that name; it is called near_good here",
        ]
        assert instruction_of(manager.tools[0]) == "Just call it."
        session = session_with(*manager.tools)
        assert await call(session, "good") == "at 09:20"
        assert await call(session, "dice", sides=6) == '{"rolled": 6}'
        assert await call(session, "dice", sides=0) == "Error: the tool dice failed: ValueError: no sides"
        assert await call(session, "dice") == "Error: dice: arguments: 'sides' is a required property"
        assert await call(session, "sleepy", seconds=0) == ""
        assert await call(session, "near_good") == ""
        assert await call(session, "add", a=1, b=1) == "2"
    assert sorted(path.name for path in data.iterdir()) == [
        *("mcp-logs", "mcp-servers", "mcp.tools.json", "remote-mcp-servers", "tools")
    ]


async def test_a_local_tool_that_takes_too_long_is_given_up(data):
    (data / "tools" / "sleepy.py").write_text(SLEEPY)
    async with await ToolManager.open(data, timeout_seconds=0.05) as manager:
        told = await call(session_with(*manager.tools), "sleepy", seconds=60)
    assert told == "Error: sleepy did not finish within 0.05 seconds"


def test_a_local_tool_that_was_given_up_keeps_no_process_alive(tmp_path):
    (tmp_path / "stuck.py").write_text("PARAMETERS = {}\nimport time\ndef execute(arguments): time.sleep(60)\n")
    script = f"""if True:
        import asyncio, pathlib
        from agentlab.tools.mcp.scripts import load_tools
        ((_, tool),), _ = load_tools(pathlib.Path({str(tmp_path)!r}), 0.05)
        try:
            asyncio.run(tool.run({{}}, None))
        except Exception as failure:
            print(failure)
        """
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.stderr) == ("stuck did not finish within 0.05 seconds\n", "")


async def test_a_local_tool_that_returns_after_it_was_given_up_disturbs_nobody(data):
    (data / "tools" / "slow.py").write_text(
        "import time\nPARAMETERS = {}\ndef execute(arguments):\n    time.sleep(0.1)\n    return 'late'\n"
    )
    async with await ToolManager.open(data, timeout_seconds=0.02) as manager:
        told = await call(session_with(*manager.tools), "slow")
        await asyncio.sleep(0.2)
    assert told == "Error: slow did not finish within 0.02 seconds"


def run_of_the_layered_agent(tmp_path: Path, **turn: Any) -> Path:
    """Of one turn, with the data folder in `tmp_path`; returns the folder it is to be written to."""
    (tmp_path / "set").mkdir(exist_ok=True)
    (tmp_path / "set" / "conversations.jsonl").write_text(json.dumps({"id": "a", "turns": [{"user": "hi"}], **turn}))
    reply = '{"chat": "Hello.", "canvas": ""}'
    flow = {"flow": "ego", "data": str(tmp_path / "data"), "planning": False, "reflection": False}
    settings = {"embedder": "hashing/hashing-64", "scorers": ["answer"], "datasets": [str(tmp_path / "set")]}
    with al.Lab(flows=[flow], model=Scripted([reply], loop=True), **settings) as lab:
        lab.run_sync(out=tmp_path / "run")
    return tmp_path / "run"


def test_a_broken_tool_file_ends_a_run_before_anything_is_written(data, own_home, tmp_path):
    (data / "tools" / "bad.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"bad\.py: cannot be loaded: ZeroDivisionError"):
        run_of_the_layered_agent(tmp_path)
    assert not (tmp_path / "run").exists()
    # A conversation that brings its own tools leaves those of the folder alone.
    tools = [{"name": "own", "description": "", "parameters": {"type": "object"}}]
    assert (run_of_the_layered_agent(tmp_path, tools=tools) / "run.json").exists()


def test_what_is_odd_about_tools_stands_in_the_log_of_the_run(data, own_home, tmp_path):
    (data / "tools" / "dice.py").write_text(DICE)
    (data / "mcp-servers" / "away.json").write_text('{"command": "no-such-command-here"}')
    run = run_of_the_layered_agent(tmp_path)
    (line,) = [line for line in (run / "run.log").read_text().splitlines() if " WARNING agentlab.lab.lab: " in line]
    assert "the MCP server away cannot be reached (no-such-command-here: No such file or directory)" in line


@pytest.mark.parametrize(
    ("source", "problem"),
    {
        "def execute(:": "cannot be loaded: SyntaxError: ",
        "import no_such_module": "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        "raise SystemExit(3)": "cannot be loaded: SystemExit: 3",
        "x = 1": "a tool has PARAMETERS and execute(arguments), or build()",
        "PARAMETERS = {}\nexecute = 3": "a tool has PARAMETERS and execute(arguments), or build()",
        "PARAMETERS = []\ndef execute(a): pass": "broken: broken: is left out: its schema is not an object",
        "PARAMETERS = {}\nNAME = 3\ndef execute(a): pass": "broken: tool 1 is left out: it has no name",
        "def build(): return 1": "build() returns a tool with a spec (ToolSpec) and run(arguments, session)",
        "def build(): return 1 / 0": "build() failed: ZeroDivisionError: division by zero",
    }.items(),
)
async def test_a_broken_tool_file_is_one_line(data, source, problem):
    (data / "tools" / "broken.py").write_text(source)
    with pytest.raises(ConfigError) as refusal:
        await ToolManager.open(data)
    told = str(refusal.value)
    assert told.startswith(f"{data}/tools/broken.py: {problem}") and "\n" not in told


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        "{": ":1: not JSON",
        "[" * 100_000: ": not JSON",
        "[]": ": it is a JSON object",
        "{}": ': it holds no servers, as in {"mcpServers": {"time": {"command": "..."}}}',
        '{"mcpServers": {"a": 3}}': ": server 'a': it is an object with either a 'command' or a 'url'",
        '{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}': ": server 'a': it is an object with either",
        '{"mcpServers": {"a": {"command": ""}}}': ": server 'a': 'command' is a text",
        '{"mcpServers": {"a": {"command": "x", "args": "-v"}}}': ": server 'a': 'args' is a list of texts",
        '{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}': ": server 'a': 'env' maps names to texts of one",
        '{"mcpServers": {"a": {"url": "http://x", "headers": {"A": "b\\nc"}}}}': ": server 'a': 'headers' maps names",
        '{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "ftp://x/y"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "http://[x"}}}': ": server 'a': 'url' is no address",
        '{"mcpServers": {"a": {"url": "http://"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "http://me:pw@x/"}}}': ": server 'a': 'url' holds a password",
        '{"mcpServers": {"a": {"url": "http://x/", "type": "sse"}}}': ": server 'a': transport 'sse' is not known;",
        '{"mcpServers": {"a\\u001b": {"command": "x"}}}': ": server 'a\\x1b': a server needs a short name",
    }.items(),
)
async def test_a_bad_configuration_is_one_line(tmp_path, content, problem):
    file = tmp_path / "mcp.json"
    file.write_text(content)
    with pytest.raises(ConfigError) as refusal:
        await ToolManager.from_config(file)
    told = str(refusal.value)
    assert told.startswith(f"{file}{problem}") and "\n" not in told


async def test_a_data_folder_that_contradicts_itself_is_one_line(data):
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere to load tools from"):
        await ToolManager.open(data / "nowhere")
    with pytest.raises(ConfigError, match=r"cannot read .*none\.json: No such file"):
        await ToolManager.from_config(data / "none.json")
    (data / "mcp-servers" / "x.json").write_text('{"url": "http://127.0.0.1:9/"}')
    with pytest.raises(ConfigError, match="a server in mcp-servers is described by its 'command'"):
        await ToolManager.open(data)
    (data / "mcp-servers" / "x.json").write_text('{"command": "x"}')
    (data / "remote-mcp-servers" / "x.json").write_text('{"url": "http://127.0.0.1:9/"}')
    with pytest.raises(ConfigError, match="there is another server called 'x'"):
        await ToolManager.open(data)
    (data / "remote-mcp-servers" / "x.json").unlink()
    (data / "mcp.tools.json").write_text('{"format": 2}')
    with pytest.raises(ConfigError, match=r"mcp\.tools\.json: not a listing of tools that is known here; delete it"):
        await ToolManager.open(data)


def test_what_is_odd_in_a_configuration_is_told(tmp_path):
    row = {"url": "https://example.org/mcp", "type": "http", "retries": 3, "headers": {"X-Api-Key": "abc", "A": "b"}}
    config, problems = server_config("far", row, tmp_path / "mcp.json")
    assert config == ServerConfig(
        name="far", folder=tmp_path, url="https://example.org/mcp", headers={"X-Api-Key": "abc", "A": "b"}
    )
    assert problems == [
        "far: 'retries' in mcp.json is not known and ignored",
        "far: X-Api-Key stands in mcp.json as it is; write ${NAME} and set the variable NAME",
    ]
