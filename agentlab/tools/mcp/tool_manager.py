"""The manager of all tools of an agent's data folder: scripts and MCP servers.

    async with await ToolManager.open(Path("data")) as manager:
        session = Session(tools=manager.tools, ...)

    data/tools/*.py                  scripts: NAME, DESCRIPTION, PARAMETERS and execute(arguments), or @tool
    data/mcp-servers/*.json          MCP servers to start: {"command": "...", "args": [...], "env": {...}}
    data/remote-mcp-servers/*.json   remote MCP servers: {"url": "...", "headers": {"Authorization": "${NAME}"}}
    data/mcp.tools.json              the stored listings of the servers

The manager requests a server's listing once and stores it. So a run has the same tools from its first turn to its last,
and a replay needs no server. The first call of a tool starts its server. If the server's listing then differs from the
stored one, the manager reports a problem, and `refresh` stores the new listing. In a chat, whose manager is `live`,
`renew` stores it at the next turn. It also reads changed files and tries missing servers again.

Results and failures are recorded by server, tool, arguments and the occurrence of the call in its conversation.
Progress messages go into the trace with the result, so that a replay repeats them.

A manager belongs to the event loop that opened it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from agentlab.core.errors import ConfigError, ToolError
from agentlab.core.files import write_atomically
from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import ToolContext
from agentlab.session.session import Session
from agentlab.tools import Work
from agentlab.tools.mcp.client import McpServer
from agentlab.tools.mcp.config import ServerConfig, left_out, read_object_file, read_servers
from agentlab.tools.mcp.listing import FoundTool, usable_tools, with_unique_names
from agentlab.tools.mcp.scripts import load_scripts
from agentlab.wire.keys import digest

log = logging.getLogger(__name__)
FORMAT = 1
DEFAULT_SECONDS = 30.0
RETRY_SECONDS = 60.0
"""Minimum time between two attempts to reach a missing server whose entry is unchanged."""


@dataclass(eq=False)
class ToolManager(AbstractAsyncContextManager["ToolManager"]):
    """Manager of `tools`, in a fixed order and with unique names."""

    _cache: _ListingCache
    _scripts: Sequence[FoundTool]
    _left_out: list[str] | None
    """A line for each broken script and listing; None if a broken part raises ConfigError."""
    _seconds: float
    _reserved: Collection[str]
    servers: Sequence[McpServer] = ()
    problems: list[str] = field(default_factory=list)
    """A line for each defect, and for each part that is left out."""
    tools: tuple[FoundTool, ...] = ()
    _listed: dict[str, Sequence[ToolSpec]] = field(default_factory=dict)
    """The tools of each server."""
    _failures: WeakKeyDictionary[McpServer, tuple[float, str]] = field(default_factory=WeakKeyDictionary)
    """Time and problem of the last attempt to list the tools of a missing server."""
    _offered: WeakKeyDictionary[Session, tuple[FoundTool, ...]] = field(default_factory=WeakKeyDictionary)
    _occurrences: WeakKeyDictionary[ToolContext, Counter[str]] = field(default_factory=WeakKeyDictionary)
    """Number of equal calls per conversation."""

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        reserved: Collection[str] = (),
        timeout_seconds: float | None = None,
        refresh: bool = False,
        live: bool = False,
    ) -> Self:
        """Load the tools of a data folder, or of the servers in a file `{"mcpServers": {name: {...}}}`.

        `refresh` requests the listings of all servers again. `reserved` are the names of the agent's own tools. Raises
        ConfigError, in one line, for an unusable file. An unavailable server is a problem, not an error. So is a broken
        script, entry or stored listing if `live` or `refresh` is set; a run without its tool would mislead.
        """
        seconds = timeout_seconds or DEFAULT_SECONDS
        if not path.exists():
            raise ConfigError(f"there is no file or folder {path} to load tools from")
        left_out: list[str] | None = [] if live or refresh else None
        scripts = load_scripts(path / "tools", seconds, left_out)
        manager = cls(_ListingCache(path, left_out), scripts, left_out, seconds, reserved)
        try:
            await manager._load(refresh)
        except BaseException:
            await manager.close()
            raise
        return manager

    async def close(self) -> None:
        """Stop all servers and wait for their end."""
        await asyncio.gather(*(server.close() for server in self.servers))

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _load(self, refresh: bool = False) -> None:
        """Read the servers' entries and list their tools; a server whose entry is unchanged stays connected."""
        left_out = None if self._left_out is None else [*self._left_out]
        configs, notes = read_servers(self._cache.path, left_out)
        earlier, logs = self.servers, self._cache.file.parent / "mcp-logs"
        same = {server.name: server for server in earlier if server.config in configs}
        self.servers = [same.get(each.name) or McpServer(each, seconds=self._seconds, logs=logs) for each in configs]
        await asyncio.gather(*(server.close() for server in earlier if server.name not in same))
        listings = await asyncio.gather(*(self._listing_of(server, refresh) for server in self.servers))
        self._listed = {server.name: specs for server, (specs, _) in zip(self.servers, listings, strict=True)}
        of_servers = [
            FoundTool(spec, self._caller(server, spec.name), source=server.name)
            for server in self.servers
            for spec in self._listed[server.name]
        ]
        self.tools, renamed = with_unique_names(self._scripts, of_servers, self._reserved)
        self.problems = [*(left_out or ()), *notes, *chain.from_iterable(lines for _, lines in listings), *renamed]

    def offer_to(self, session: Session) -> None:
        """Add the tools to `session` and remove the ones added before."""
        for tool in self._offered.get(session, ()):
            del session.tools[tool.spec.name]
        session.tools.update({tool.spec.name: tool for tool in self.tools})
        self._offered[session] = self.tools

    async def renew(self) -> list[str]:
        """Read the entries again, store the current listings, and return a line for each server with other tools."""
        listed = self._listed
        await self._load()
        changed = (name for name, specs in self._listed.items() if specs != listed.get(name, ()))
        return [f"the tools of {name} have changed" for name in changed]

    async def _listing_of(self, server: McpServer, refresh: bool) -> tuple[Sequence[ToolSpec], list[str]]:
        """Return the tools of a server, stored or listed now, and a line for each problem."""
        rows = stored = self._cache.rows(server.config)
        problems: list[str] = []
        if stored is None or refresh or server.differs_from(stored):
            failed_at, failure = self._failures.get(server, (0.0, ""))
            if stored is None and failure and time.monotonic() - failed_at < RETRY_SECONDS:
                return (), [failure]
            try:
                rows, problems = await server.listing()
                problems += self._cache.save(server.config, rows)
            except ToolError as problem:
                self._failures[server] = time.monotonic(), str(problem)
                if stored is None:
                    return (), [str(problem)]
                return usable_tools(server.name, stored)[0], [f"{problem}; its stored listing is used"]
        specs, notes = await asyncio.to_thread(usable_tools, server.name, rows or ())
        return specs, [*notes, *([] if specs else [f"{server.name}: it lists no usable tool"]), *problems]

    def _report_change(self, server: McpServer) -> None:
        """Add a problem if the server's listing differs from the stored one, which the run continues to use."""
        problem = f"{server.name}: its tools differ from {self._cache.file.name}; refresh to store the new listing"
        if server.differs_from(self._cache.rows(server.config)) and problem not in self.problems:
            log.warning("%s", problem)
            self.problems.append(problem)

    def _caller(self, server: McpServer, name: str) -> Work:
        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            """Return the server's or the recorded result; raise ToolError for an error result or without a result."""
            facts: dict[str, Any] = {"server": server.name, "tool": name, "arguments": arguments}
            occurrences, key = self._occurrences.setdefault(context, Counter()), json.dumps(facts, sort_keys=True)
            if occurrences[key]:
                # Reading a value again after a change must not return the recording of the first reading.
                facts["repeat"] = occurrences[key]
            occurrences[key] += 1
            result = await context.fetch("mcp", facts, lambda: server.call(name, arguments, context))
            if self._left_out is None:
                self._report_change(server)
            for line in result.get("progress", ()):
                context.notify("subsystemMessage", str(line), title=f"tool {name}: progress")
            if result["error"]:
                raise ToolError(result["text"] or f"{name}: it failed and does not say why")
            return str(result["text"])

        return run


class _ListingCache:
    """Stored listings in a file beside the servers' configuration. A listing is valid while its entry is unchanged."""

    def __init__(self, path: Path, problems: list[str] | None) -> None:
        """Read the listings of the folder or file `path`; an unusable file is left out or raises ConfigError."""
        self.path = path
        self.file = path / "mcp.tools.json" if path.is_dir() else path.with_suffix(".tools.json")
        self._servers: dict[str, Any] = {}
        with left_out(problems):
            content: dict[str, Any] = (
                read_object_file(self.file) if self.file.exists() else {"format": FORMAT, "servers": {}}
            )
            if content.get("format") != FORMAT or not isinstance(content.get("servers"), dict):
                raise ConfigError(f"{self.file}: unknown format of tool listings; delete the file to create it again")
            self._servers = content["servers"]

    def rows(self, config: ServerConfig) -> list[dict[str, Any]] | None:
        entry = self._servers.get(config.name)
        return list(entry["tools"]) if entry is not None and entry["config"] == _config_hash(config) else None

    def save(self, config: ServerConfig, rows: list[dict[str, Any]]) -> list[str]:
        """Store a listing; return a line if the file cannot be written."""
        self._servers[config.name] = {"config": _config_hash(config), "tools": rows}
        try:
            write_atomically(self.file, json.dumps({"format": FORMAT, "servers": self._servers}, indent=1) + "\n")
        except OSError as failure:
            return [f"{self.file}: cannot be written ({failure.strerror}); a replay needs the server {config.name}"]
        return []


def _config_hash(config: ServerConfig) -> str:
    """Return the hash of the entry with its variables unexpanded: their values differ between machines."""
    entry = [config.command or "", list(config.args), config.env, config.url or "", config.headers]
    return digest(entry)[:12]
