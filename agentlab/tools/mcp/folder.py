"""Every tool of an agent's data folder in one form, whatever stands behind it.

    async with await ToolManager.open(Path("data")) as manager:
        session = Session(tools=manager.tools, ...)

    data/tools/*.py                  local tools: NAME, DESCRIPTION, PARAMETERS and execute(arguments), or build()
    data/mcp-servers/*.json          MCP servers we start: {"command": "...", "args": [...], "env": {...}}
    data/remote-mcp-servers/*.json   MCP servers elsewhere: {"url": "...", "headers": {"Authorization": "${NAME}"}}
    data/mcp.tools.json              what the servers listed, written by us

What a server lists is asked for once and kept, so a run has the same tools from its first turn to its last and a replay
needs no server at all. A server is started at its first call; if it then lists something else than what is kept, that
is a problem to be told, and `refresh` takes the new listing over. Its answers are recorded by server, tool, arguments
and, where a conversation asks the same again, how often it did; so is a failure to answer. What a server says while it
works goes to `on_progress` and the log at once, and into the trace with its answer, as a replay repeats it.

A manager belongs to the event loop it was opened in.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from agentlab.core.errors import ConfigError, ToolError
from agentlab.core.files import replace_file
from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.tools.mcp.client import McpServer, Progress
from agentlab.tools.mcp.config import ServerConfig, server_config
from agentlab.tools.mcp.listing import accepted, listing_row, plain
from agentlab.tools.mcp.registry import argument_list
from agentlab.tools.mcp.scripts import load_tools
from agentlab.wire.keys import digest

if TYPE_CHECKING:
    from agentlab.session.session import Session

log = logging.getLogger(__name__)
FORMAT = 1


class ToolManager:
    """`tools` in a fixed order, each name once; `problems`: what could not be loaded or is odd, a line each."""

    def __init__(
        self, configs: Sequence[ServerConfig], kept: Path, logs: Path, *, timeout_seconds: float, on_progress: Progress
    ) -> None:
        self.tools: tuple[ManagedTool, ...] = ()
        self._not_ours: dict[str, str] = {}
        """Names that no tool here may have, and whose they are."""
        self.problems: list[str] = []
        self._kept = _Kept(kept)
        self._servers = [
            McpServer(
                config,
                seconds=timeout_seconds,
                logs=logs,
                on_listing=lambda raw, config=config: self._compare(config, raw),  # type: ignore[misc]
                on_progress=on_progress,
            )
            for config in configs
        ]
        self._asked: WeakKeyDictionary[Session, Counter[str]] = WeakKeyDictionary()

    @classmethod
    async def open(
        cls,
        data: Path,
        *,
        reserved: Collection[str] = (),
        timeout_seconds: float = 30.0,
        refresh: bool = False,
        on_progress: Progress = lambda server, tool, text: None,
    ) -> Self:
        """Every tool of the folder; with `refresh` all servers are asked anew. `reserved`: names of the agent's own.

        Raises ConfigError, in one line, for a file that cannot be used; a server that is away is a problem.
        """
        if not data.is_dir():
            raise ConfigError(f"there is no folder {data} to load tools from")
        configs: list[ServerConfig] = []
        problems: list[str] = []
        for folder, keyword in (("mcp-servers", "command"), ("remote-mcp-servers", "url")):
            for file in sorted(data.joinpath(folder).glob("*.json")):
                config, notes = server_config(file.stem, _read(file), file)
                if not getattr(config, keyword):
                    raise ConfigError(f"{file}: a server in {folder} is described by its {keyword!r}")
                if any(other.name == config.name for other in configs):
                    raise ConfigError(
                        f"{file}: there is another server called {config.name!r}; rename one of the files"
                    )
                configs.append(config)
                problems += notes
        local, notes = load_tools(data / "tools", timeout_seconds)
        manager = cls(
            configs,
            data / "mcp.tools.json",
            data / "mcp-logs",
            timeout_seconds=timeout_seconds,
            on_progress=on_progress,
        )
        manager.problems += [*notes, *problems]
        manager._not_ours = dict.fromkeys(reserved, "the agent")
        return await manager._load(local, refresh)

    @classmethod
    async def from_config(
        cls,
        file: Path,
        *,
        timeout_seconds: float = 30.0,
        refresh: bool = False,
        on_progress: Progress = lambda server, tool, text: None,
    ) -> Self:
        """The tools of the servers in a file `{"mcpServers": {name: {...}}}`, as other programs write it too."""
        content = _read(file)
        servers = content.get("mcpServers")
        if not isinstance(servers, dict):
            raise ConfigError(f'{file}: it holds no servers, as in {{"mcpServers": {{"time": {{"command": "..."}}}}}}')
        read = [server_config(name, row, file) for name, row in servers.items() if not _is_off(row)]
        manager = cls(
            [config for config, _ in read],
            file.with_suffix(".tools.json"),
            file.parent / "mcp-logs",
            timeout_seconds=timeout_seconds,
            on_progress=on_progress,
        )
        manager.problems += [note for _, notes in read for note in notes]
        return await manager._load((), refresh)

    async def close(self) -> None:
        """End every server and wait until all are gone."""
        await asyncio.gather(*(server.close() for server in self._servers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _load(self, local: Sequence[tuple[str, Tool]], refresh: bool) -> Self:
        try:
            listings = await asyncio.gather(*(self._listed(server, refresh) for server in self._servers))
        except BaseException:
            await self.close()
            raise
        taken: dict[str, ManagedTool] = {}
        listed = Counter(spec.name for specs, _ in listings for spec in specs)
        for source, tool in local:
            self._add(taken, source, tool.spec, LocalTool, tool)
        # Else a name would be another server's tool on the day the first one is away.
        shared = [name for name, servers in listed.items() if servers > 1]
        self._not_ours = dict.fromkeys(shared, "another server") | self._not_ours
        for server, (specs, notes) in zip(self._servers, listings, strict=True):
            self.problems += notes
            for spec in specs:
                self._add(taken, server.name, spec, McpTool, server, spec.name, self._asked)
        self.tools = tuple(taken.values())
        return self

    async def _listed(self, server: McpServer, refresh: bool) -> tuple[Sequence[ToolSpec], list[str]]:
        kept = self._kept.of(server.config)
        if kept is not None and not refresh:
            return accepted(server.name, kept)[0], self._kept.notes(server.config)
        try:
            raw = await server.listing()
        except ToolError as problem:
            if kept is None:
                return (), [str(problem)]
            return accepted(server.name, kept)[0], [f"{problem}; its tools are those it listed before"]
        specs, told = await asyncio.to_thread(accepted, server.name, raw)
        notes = [*told, *([] if specs else [f"{server.name}: it offers no tool that can be used"])]
        unkept = self._kept.keep(server.config, specs, notes)
        return specs, [*notes, *([unkept] if unkept else [])]

    def _compare(self, config: ServerConfig, raw: list[Any]) -> None:
        """Called when a server is started: the run goes on with what is kept, but somebody should know."""
        kept = self._kept.of(config)
        if kept is None or not self.tools:
            return
        before = {spec.name: listing_row(spec) for spec in accepted(config.name, kept)[0]}
        now = {spec.name: listing_row(spec) for spec in accepted(config.name, raw)[0]}
        differences = {
            "new": [name for name in now if name not in before],
            "gone": [name for name in before if name not in now],
            "changed": [name for name in now if name in before and now[name] != before[name]],
        }
        told = "; ".join(f"{what}: {', '.join(names)}" for what, names in differences.items() if names)
        problem = (
            f"{config.name}: it no longer lists what {self._kept.file.name} keeps ({told}); refresh to take it over"
        )
        if told and problem not in self.problems:
            log.warning("%s", problem)
            self.problems.append(problem)

    def _add(
        self,
        taken: dict[str, ManagedTool],
        source: str,
        spec: ToolSpec,
        kind: Callable[..., ManagedTool],
        *made_of: Any,
    ) -> None:
        name, number = spec.name, 1
        while name in taken or name in self._not_ours:
            name = f"{source}_{spec.name}{f'_{number}' if number > 1 else ''}"
            number += 1
        if name != spec.name:
            other = taken[spec.name].source if spec.name in taken else self._not_ours[spec.name]
            self.problems.append(f"{source}: {spec.name}: {other} has a tool of that name; it is called {name} here")
        taken[name] = kind(replace(spec, name=name), source, *made_of)


class ManagedTool:
    """A tool with the name and the schema the model is told."""

    def __init__(self, spec: ToolSpec, source: str) -> None:
        self.spec = spec
        self.source = source
        """The server it is from, or the file."""
        self.instruction = ""

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        raise NotImplementedError


class LocalTool(ManagedTool):
    """It runs in this process, in a replay as well."""

    def __init__(self, spec: ToolSpec, source: str, tool: Any) -> None:
        super().__init__(spec, source)
        self.instruction = getattr(tool, "instruction", "")
        self._tool = tool

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        output = self._tool.run(arguments, session)
        return str(await output if inspect.isawaitable(output) else output)


class McpTool(ManagedTool):
    def __init__(
        self,
        spec: ToolSpec,
        source: str,
        server: McpServer,
        name: str,
        asked: WeakKeyDictionary[Session, Counter[str]],
    ) -> None:
        super().__init__(spec, source)
        self._server = server
        self._name = name
        self._asked = asked

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """The server's answer, or the recorded one; raises ToolError for its errors and where it does not answer."""
        facts: dict[str, Any] = {"server": self.source, "tool": self._name, "arguments": arguments}
        asked, key = self._asked.setdefault(session, Counter()), json.dumps(facts, sort_keys=True)
        if asked[key]:
            # What is read after it was changed must not be the first reading again.
            facts["repeat"] = asked[key]
        asked[key] += 1
        answer = await session.fetch("mcp", facts, lambda: self._server.call(self._name, arguments))
        for told in answer.get("progress", ()):
            session.notify("subsystemMessage", str(told), title=f"tool {self.spec.name}: progress")
        if answer["error"]:
            raise ToolError(answer["text"] or f"{self.spec.name}: it failed and does not say why")
        return str(answer["text"])


def _is_off(row: Any) -> bool:
    return isinstance(row, dict) and row.get("disabled") is True


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"cannot read {file}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        line = getattr(problem, "lineno", None)
        raise ConfigError(f"{file}{f':{line}' if line else ''}: not JSON") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: it is a JSON object")
    return content


class _Kept:
    """What servers listed, in a file beside their configuration, each as long as its entry there stays as it was."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._servers: dict[str, Any] = {}
        if file.exists():
            content = _read(file)
            if content.get("format") != FORMAT or not isinstance(content.get("servers"), dict):
                raise ConfigError(f"{file}: not a listing of tools that is known here; delete it to have it made anew")
            self._servers = content["servers"]

    def of(self, config: ServerConfig) -> list[Any] | None:
        row = self._servers.get(config.name)
        if not isinstance(row, dict) or row.get("config") != _mark(config) or not isinstance(row.get("tools"), list):
            return None
        return list(row["tools"])

    def notes(self, config: ServerConfig) -> list[str]:
        return [str(note) for note in self._servers[config.name].get("problems", ())]

    def keep(self, config: ServerConfig, specs: Sequence[ToolSpec], notes: Sequence[str]) -> str:
        """Write a listing down; returns why that failed, "" if it did not."""
        rows = [listing_row(spec) for spec in specs]
        self._servers[config.name] = {"config": _mark(config), "tools": rows, "problems": list(notes)}
        try:
            replace_file(self.file, json.dumps({"format": FORMAT, "servers": self._servers}, indent=1) + "\n")
        except OSError as problem:
            return (
                f"{self.file}: what {config.name} lists cannot be kept ({problem.strerror}); a replay will ask it again"
            )
        return ""


def _mark(config: ServerConfig) -> str:
    """Of the entry as it is written: what its variables hold may differ from machine to machine."""
    entry = [config.command, list(config.args), dict(config.env), config.url, dict(config.headers)]
    return digest(entry)[:12]


def describe(manager: ToolManager) -> str:
    """A table for the command line: server, tool, its arguments (`?`: may be left out), what it does."""
    rows = [("SERVER", "TOOL", "PARAMETERS", "DESCRIPTION")]
    for tool in manager.tools:
        first = tool.spec.description.split("\n")[0]
        parameters = argument_list(tool.spec.parameters) or "-"
        cells = (tool.source, tool.spec.name, parameters, first)
        rows.append(tuple(plain(" ".join(cell.split()), 60) for cell in cells))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ("  ".join([*(cell.ljust(w) for cell, w in zip(row[:3], widths, strict=True)), row[3]]) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
