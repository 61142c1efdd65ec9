"""`agentlab list`: names for a spec, settings and prompts of flows, tools of servers, the schema of a spec."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlab.cli.echo import echo, echo_block
from agentlab.cli.options import DEFAULT_SPEC
from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.core.files import data_folder
from agentlab.models import hub_files, weights
from agentlab.models.local.trial import stored_trials
from agentlab.tools.mcp.listing import describe
from agentlab.tools.mcp.tool_manager import ToolManager
from agentlab.workbench.settings import settings_of, spec_schema
from agentlab.workbench.spec import FlowSpec, load_spec
from agentlab.workbench.variants import make_variant, placeholders

ROOMS = {room.rpartition(".")[2]: room for room in plugins.GROUPS}
"""Name of a list of plug-ins -> its room."""
NARROWED_BY = {"spec": ("prompts",), "flow": ("flows", "prompts"), "mcp": ("tools",), "data": ("tools",)}
"""Argument -> lists that it narrows."""


def list_names(arguments: argparse.Namespace) -> None:
    what = arguments.what
    for name, lists in NARROWED_BY.items():
        if getattr(arguments, name) is not None and what not in lists:
            flag = "a spec" if name == "spec" else f"--{name}"
            raise ConfigError(f"{flag} works with `agentlab list {'` and `agentlab list '.join(lists)}` only")
    if what == "schema":
        echo_block(json.dumps(spec_schema(), indent=2))
    elif what == "prompts":
        _list_prompts(arguments)
    elif what == "models":
        _list_models()
    elif arguments.mcp or arguments.data:
        for path in filter(None, (arguments.mcp, arguments.data)):
            _list_served_tools(Path(path), arguments.timeout)
    else:
        _list_room(what, arguments.flow)


def _list_room(what: str, flows: Sequence[str] | None) -> None:
    names = plugins.names(ROOMS[what])
    for name in flows or names:
        echo(f"{name:22} {names.get(name, '')}".rstrip())
        for setting in _settings(name) if what == "flows" else ():
            echo(f"  {setting}")


def _list_models() -> None:
    rooms: dict[weights.Kind, str] = {"chat": "models", "embedding": "models.embedders"}
    for kind, room in rooms.items():
        echo(f"{kind} models:")
        for name in weights.names(kind):
            state = "installed" if weights.is_present(name) else f"agentlab pull {name}"
            entry = weights.CATALOGUE[name]
            megabytes = sum(file.bytes for file in entry.files) / 1e6
            echo(f"  local/{name:30} {megabytes:6.0f} MB  {entry.licence}  ({state})")
        for file, sha256 in hub_files.files_here() if kind == "chat" else ():
            echo(f"  local/{file.name}@{sha256[:12]}...  {file.target.stat().st_size / 1e6:.0f} MB  (installed)")
        for trial in stored_trials() if kind == "chat" else ():
            echo(f"  trial of {trial.name}: {trial}")
        for name, text in plugins.names(room).items():
            echo(f"  {name + '/...':36} {text}")


def _settings(flow: str) -> Iterator[str]:
    """Yield a line for each setting of a flow: its default and its description."""
    for name, schema in settings_of(flow).items():
        default = json.dumps(schema["default"]) if "default" in schema else ""
        yield f"{name}: {'  '.join(part for part in (default, schema.get('description', '')) if part)}"


def _list_served_tools(path: Path, timeout_seconds: float) -> None:
    async def load() -> ToolManager:
        async with await ToolManager.open(path, timeout_seconds=timeout_seconds, refresh=True) as manager:
            return manager

    manager = asyncio.run(load())
    echo_block(describe(manager.tools))
    for problem in manager.problems:
        echo(f"note: {problem}")


def _list_prompts(arguments: argparse.Namespace) -> None:
    path = arguments.spec or (DEFAULT_SPEC if DEFAULT_SPEC.exists() and not arguments.flow else None)
    spec = load_spec(path)
    for flow in [FlowSpec(flow=name) for name in arguments.flow or ()] or spec.flows:
        variant, module = make_variant(spec, flow), plugins.resolve("flows", flow.flow)
        folders = getattr(module, "PROMPT_MODULES", {})
        files = {name: f"{folder}/{name.upper()}.txt" for folder, names in folders.items() for name in names}
        width = max(map(len, files.values()), default=0)
        echo(variant.label + (f"   (files in {data_folder(variant.settings.data) / 'prompts'})" if files else ""))
        for name, text in variant.prompts.items():
            file = f"{files[name]:{width}} " if files else ""
            fields = _placeholders(module.PROMPTS[name], text, variant.prompt_sources.get(name))
            echo(f"  {name:24} {file}{fields}".rstrip())


def _placeholders(default: str, text: str, source: str | None) -> str:
    """Return the placeholders of a prompt, and for a replaced prompt its source and the placeholders it omits."""
    fields, used = placeholders(default) or [], placeholders(text) or []
    unused = " ".join(f"{{{field}}}" for field in fields if field not in used)
    origin = f"   (from {source}{f'; not used: {unused}' if unused else ''})"
    return " ".join(f"{{{field}}}" for field in fields) + (origin if source else "")
