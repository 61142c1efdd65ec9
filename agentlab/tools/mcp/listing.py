"""Validation and naming of the tools that servers and scripts list.

    specs, problems = usable_tools("time", [{"name": "now", "description": "...", "inputSchema": {"type": "object"}}])

A model reads the names, descriptions and schemas. Unusable tools are left out, each with a line that gives the reason.
A listing made of accepted tools is accepted unchanged.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from agentlab.core.escaping import strip_control_chars
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import load_jsonschema, simplify_schema
from agentlab.core.strict_json import parse_json
from agentlab.tools import FunctionTool
from agentlab.tools.manual import argument_list

MAX_TOOLS = 128
"""Maximum number of tools of a folder; OpenAI accepts no more in a request."""


@dataclass(frozen=True)
class FoundTool(FunctionTool):
    """A tool of a folder, with the name that the model uses."""

    source: str = ""
    """The name of its server or script."""


class _Unfit(Exception):
    """The reason why a tool is left out; the message follows the name of the tool."""


def usable_tools(source: str, rows: Sequence[Any]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """Return the usable tools of a listing in its order, and a line for each unusable or duplicate one."""
    specs: dict[str, ToolSpec] = {}
    problems = []
    for number, row in enumerate(rows, 1):
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or not name or plain(name) != name or "\n" in name:
            problems.append(f"{source}: tool {number} is left out: it has no usable name")
        elif name in specs:
            problems.append(f"{source}: {name}: duplicate name; the first tool is used")
        else:
            try:
                if (row.get("execution") or {}).get("taskSupport") == "required":
                    raise _Unfit("it needs tasks, which agentlab does not offer")
                schema = _checked_schema(row.get("inputSchema"))
            except _Unfit as reason:
                problems.append(f"{source}: {name}: is left out: {reason}")
            else:
                description = plain(str(row.get("description") or ""))
                specs[name] = ToolSpec(name=name, description=description, parameters=schema)
    return tuple(specs.values()), tuple(problems)


def _checked_schema(raw: Any) -> dict[str, Any]:
    """Return a copy of a schema that can validate arguments; raise _Unfit if there is none."""
    jsonschema = load_jsonschema()
    if not isinstance(raw, dict):
        raise _Unfit("its schema is not an object")
    try:
        schema: dict[str, Any] = parse_json(json.dumps(raw))
        with contextlib.suppress(jsonschema.SchemaError):
            jsonschema.Draft202012Validator.check_schema(schema, format_checker=None)
            return _object_schema(schema)
        # Reduce a schema of another dialect to the keywords that all dialects share.
        return _object_schema(simplify_schema(schema, closed=False))
    except (TypeError, ValueError, RecursionError) as problem:
        is_deep = isinstance(problem, RecursionError) or "nested" in str(problem)
        raise _Unfit(f"its schema is {'nested too deep' if is_deep else 'not JSON'}") from None


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    # Some providers refuse a request whose schema names its dialect.
    schema.pop("$schema", None)
    if "object" not in schema.get("type", "object"):
        raise _Unfit("its schema does not describe an object")
    return schema | {"type": "object"}


def plain(text: str, max_chars: int | None = None) -> str:
    """Return `text` without control and invisible characters, truncated to `max_chars`."""
    stripped = strip_control_chars(text).strip()
    return stripped if max_chars is None or len(stripped) <= max_chars else f"{stripped[: max_chars - 1]}…"


def with_unique_names(
    scripts: Sequence[FoundTool], of_servers: Sequence[FoundTool], reserved: Collection[str]
) -> tuple[tuple[FoundTool, ...], list[str]]:
    """Return at most MAX_TOOLS tools with unique names, and a line for each renamed tool and for too many tools.

    A duplicate name, or one of `reserved` (the names of the agent's own tools), gets its source as a prefix.
    """
    counts = Counter(tool.spec.name for tool in of_servers)
    # Rename the tools of all servers with the name, or it would change its owner when a server is unavailable.
    owners = {name: "another server" for name, count in counts.items() if count > 1}
    owners |= dict.fromkeys(reserved, "the agent")
    named, problems = [], []
    for tool in (*scripts, *of_servers):
        listed_name = tool.spec.name
        name, number = listed_name, 1
        while name in owners:
            name = f"{tool.source}_{listed_name}{f'_{number}' if number > 1 else ''}"
            number += 1
        if name != listed_name:
            owner = owners[listed_name]
            problems.append(f"{tool.source}: {listed_name}: {owner} has a tool of this name; it is called {name} here")
        owners[name] = tool.source
        named.append(replace(tool, spec=structs.replace(tool.spec, name=name)))
    if len(named) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} tools are used; remove unneeded servers or scripts")
    return tuple(named[:MAX_TOOLS]), problems


def describe(tools: Sequence[FoundTool]) -> str:
    """Return a table for the command line: server, tool, arguments (`?` marks optional ones), description."""
    rows = [["SERVER", "TOOL", "PARAMETERS", "DESCRIPTION"]]
    for tool in tools:
        parameters = argument_list(tool.spec.parameters) or "-"
        rows.append([tool.source, tool.spec.name, parameters, tool.spec.description.split("\n")[0]])
    return text_table(rows)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of untrusted text as aligned lines; the last column has at most 60 characters."""
    cells = [[plain(" ".join(cell.split())) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), plain(row[-1], 60)]).rstrip() for row in cells)
