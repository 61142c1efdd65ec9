"""Every tool of an agent's data folder in one form, whatever stands behind it.

    async with await ToolManager.open(Path("data")) as manager:
        session = Session(tools=manager.tools, ...)

    data/tools/*.py                  scripts: NAME, DESCRIPTION, PARAMETERS and execute(arguments), or @tool
    data/mcp-servers/*.json          MCP servers we start: {"command": "...", "args": [...], "env": {...}}
    data/remote-mcp-servers/*.json   MCP servers elsewhere: {"url": "...", "headers": {"Authorization": "${NAME}"}}
    data/mcp.tools.json              what the servers listed, written by us

What a server lists is asked for once and kept, so a run has the same tools from its first turn to its last and a replay
needs no server at all. A server is started at its first call; if it then, or later, lists something else than what is
kept, that is a problem to be told, and `refresh` takes the new listing over. For a chat, whose manager is `live`, it is
taken over at the next turn (`renew`). A server's answers are recorded by server, tool, arguments and, where a
conversation asks the same again, how often it did; so is a failure to answer. What a server says while it works goes
into the trace with its answer, as a replay repeats it.

A manager belongs to the event loop it was opened in.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, Self
from weakref import WeakKeyDictionary

from agentlab.core.errors import ConfigError, ToolError
from agentlab.core.files import write_atomically
from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool, ToolContext
from agentlab.tools import Work
from agentlab.tools.mcp.client import McpServer
from agentlab.tools.mcp.config import ServerConfig, read_object_file, servers_of_file, servers_of_folder
from agentlab.tools.mcp.listing import FoundTool, usable_tools, with_unique_names
from agentlab.tools.mcp.scripts import load_scripts
from agentlab.wire.keys import digest

log = logging.getLogger(__name__)
FORMAT = 1


class HoldsTools(Protocol):
    """What tools are offered to."""

    @property
    def tools(self) -> dict[str, Tool]: ...


class ToolManager:
    """`tools` in a fixed order, each name once; `problems`: what could not be loaded or is odd, a line each."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        scripts: Sequence[FoundTool],
        kept: Path,
        reserved: Collection[str],
        live: bool,
    ) -> None:
        self.tools: tuple[FoundTool, ...] = ()
        self.problems: list[str] = []
        self._servers = servers
        self._scripts = scripts
        self._kept = _ListingCache(kept)
        self._reserved = reserved
        self._live = live
        self._listed: dict[str, Sequence[ToolSpec]] = {}
        """The tools of each server."""
        self._offered: WeakKeyDictionary[HoldsTools, tuple[FoundTool, ...]] = WeakKeyDictionary()
        self._asked: WeakKeyDictionary[ToolContext, Counter[str]] = WeakKeyDictionary()
        """How often each conversation made each call."""

    @classmethod
    async def open(
        cls,
        where: Path,
        *,
        reserved: Collection[str] = (),
        timeout_seconds: float = 30.0,
        refresh: bool = False,
        live: bool = False,
    ) -> Self:
        """Every tool of a data folder, or of the servers in a file `{"mcpServers": {name: {...}}}`.

        With `refresh` all servers are asked anew. `reserved`: names of the agent's own. Raises ConfigError, in one
        line, for a file that cannot be used; a server that is away is a problem.
        """
        if not where.suffix and not where.exists():
            raise ConfigError(f"there is no folder {where} to load tools from")
        if where.is_dir():
            configs, problems = servers_of_folder(where)
            scripts, notes = load_scripts(where / "tools", timeout_seconds)
            kept = where / "mcp.tools.json"
        else:
            configs, problems = servers_of_file(where)
            scripts, notes = [], []
            kept = where.with_suffix(".tools.json")
        servers = [McpServer(config, seconds=timeout_seconds, logs=kept.parent / "mcp-logs") for config in configs]
        manager = cls(servers, scripts, kept, reserved, live)
        manager.problems += [*notes, *problems]
        try:
            await manager._load(refresh)
        except BaseException:
            await manager.close()
            raise
        return manager

    async def close(self) -> None:
        """End every server and wait until all are gone."""
        await asyncio.gather(*(server.close() for server in self._servers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _load(self, refresh: bool) -> None:
        listings = await asyncio.gather(*(self._listing_of(server, refresh) for server in self._servers))
        for server, (specs, notes) in zip(self._servers, listings, strict=True):
            self.problems += notes
            self._listed[server.name] = specs
        self.problems += self._name_tools()

    def _name_tools(self) -> list[str]:
        """Put the tools of all sources together; returns a line for each that is not called what it calls itself."""
        of_servers = [
            FoundTool(spec, self._caller(server, spec.name), source=server.name)
            for server in self._servers
            for spec in self._listed[server.name]
        ]
        named, renamed = with_unique_names(self._scripts, of_servers, self._reserved)
        self.tools = tuple(named)
        return renamed

    def offer_to(self, session: HoldsTools) -> None:
        """Give the tools to `session`, in place of those it was given before."""
        for tool in self._offered.get(session, ()):
            del session.tools[tool.spec.name]
        session.tools.update({tool.spec.name: tool for tool in self.tools})
        self._offered[session] = self.tools

    async def renew(self) -> list[str]:
        """Take over what servers list by now; returns a line for each that lists something else than before."""
        changed = []
        for server in self._servers:
            if server.differs_from(self._kept.rows(server.config)):
                specs, _ = await self._listing_of(server, refresh=True)
                if specs != self._listed[server.name]:
                    changed.append(f"the tools of {server.name} have changed")
                    self._listed[server.name] = specs
        if changed:
            self._name_tools()
        return changed

    async def _listing_of(self, server: McpServer, refresh: bool) -> tuple[Sequence[ToolSpec], list[str]]:
        """The tools of a server, as kept or as it lists them now, and a line for each problem."""
        kept = self._kept.rows(server.config)
        problems = []
        if kept is None or refresh:
            try:
                rows = await server.listing()
                problems += self._kept.keep(server.config, rows)
            except ToolError as problem:
                if kept is None:
                    return (), [str(problem)]
                return usable_tools(server.name, kept)[0], [f"{problem}; its tools are those it listed before"]
        else:
            rows = kept
        specs, notes = await asyncio.to_thread(usable_tools, server.name, rows)
        return specs, [*notes, *([] if specs else [f"{server.name}: it offers no tool that can be used"]), *problems]

    def _tell_of_change(self, server: McpServer) -> None:
        """A run goes on with what is kept, but somebody should know."""
        problem = f"{server.name}: it no longer lists what {self._kept.file.name} keeps; refresh to take it over"
        if server.differs_from(self._kept.rows(server.config)) and problem not in self.problems:
            log.warning("%s", problem)
            self.problems.append(problem)

    def _caller(self, server: McpServer, name: str) -> Work:
        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            """The server's answer, or the recorded one; raises ToolError for its errors and where there is none."""
            facts: dict[str, Any] = {"server": server.name, "tool": name, "arguments": arguments}
            asked, key = self._asked.setdefault(context, Counter()), json.dumps(facts, sort_keys=True)
            if asked[key]:
                # What is read after it was changed must not be the first reading again.
                facts["repeat"] = asked[key]
            asked[key] += 1
            tell = functools.partial(context.report, name)
            answer = await context.fetch("mcp", facts, lambda: server.call(name, arguments, tell))
            if not self._live:
                self._tell_of_change(server)
            for line in answer.get("progress", ()):
                context.notify("subsystemMessage", str(line), title=f"tool {name}: progress")
            if answer["error"]:
                raise ToolError(answer["text"] or f"{name}: it failed and does not say why")
            return str(answer["text"])

        return run


class _ListingCache:
    """What servers listed, in a file beside their configuration, each as long as its entry there stays as it was."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._servers: dict[str, Any] = {}
        if file.exists():
            content = read_object_file(file)
            if content.get("format") != FORMAT or not isinstance(content.get("servers"), dict):
                raise ConfigError(f"{file}: not a listing of tools that is known here; delete it to have it made anew")
            self._servers = content["servers"]

    def rows(self, config: ServerConfig) -> list[dict[str, Any]] | None:
        kept = self._servers.get(config.name)
        return list(kept["tools"]) if kept is not None and kept["config"] == _config_hash(config) else None

    def keep(self, config: ServerConfig, rows: list[dict[str, Any]]) -> list[str]:
        """Write a listing down; returns what went wrong, in a line."""
        self._servers[config.name] = {"config": _config_hash(config), "tools": rows}
        try:
            write_atomically(self.file, json.dumps({"format": FORMAT, "servers": self._servers}, indent=1) + "\n")
        except OSError as failure:
            unkept = f"what {config.name} lists cannot be kept ({failure.strerror}); a replay will ask it again"
            return [f"{self.file}: {unkept}"]
        return []


def _config_hash(config: ServerConfig) -> str:
    """Of the entry as it is written: what its variables hold may differ from machine to machine."""
    entry = [config.command or "", list(config.args), config.env, config.url or "", config.headers]
    return digest(entry)[:12]
