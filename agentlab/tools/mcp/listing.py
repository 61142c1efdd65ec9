"""The tools of a data folder as they are offered: what is taken of a listing, and under which names.

    specs, problems = accepted("time", [{"name": "now", "description": "...", "inputSchema": {"type": "object"}}])

Names, descriptions and schemas are shown to a model: what cannot be is left out, and a line says so. A listing that was
accepted once is accepted again as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from agentlab.core.escaping import strip_control_chars
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import load_jsonschema
from agentlab.core.strict_json import parse_json
from agentlab.tools import FunctionTool
from agentlab.tools.manual import argument_list

MAX_TOOLS = 128
"""Tools of a folder that count, as many as OpenAI takes in a request."""


@dataclass(frozen=True)
class FoundTool(FunctionTool):
    """A tool of a folder, under the name that the model is told."""

    source: str = ""
    """The server it is from, or the script."""


class _Unfit(Exception):
    """Why a tool is left out, to be read after its name."""


def usable_tools(source: str, rows: Sequence[Any]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The tools of a listing that can be used, in its order, and a line for each that cannot, or not as it stands."""
    specs: dict[str, ToolSpec] = {}
    problems = []
    for number, row in enumerate(rows, 1):
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or not name or plain(name) != name or "\n" in name:
            problems.append(f"{source}: tool {number} is left out: it has no name that can be used")
        elif name in specs:
            problems.append(f"{source}: {name}: is listed twice; the first counts")
        else:
            try:
                schema = _checked_schema(row.get("inputSchema"))
            except _Unfit as reason:
                problems.append(f"{source}: {name}: is left out: {reason}")
            else:
                description = plain(str(row.get("description") or ""))
                specs[name] = ToolSpec(name=name, description=description, parameters=schema)
    return tuple(specs.values()), tuple(problems)


def _checked_schema(raw: Any) -> dict[str, Any]:
    """A copy of a schema that arguments can be checked against."""
    jsonschema = load_jsonschema()
    if not isinstance(raw, dict):
        raise _Unfit("its schema is not an object")
    try:
        schema: dict[str, Any] = parse_json(json.dumps(raw))
        jsonschema.Draft202012Validator.check_schema(schema, format_checker=None)
    except (TypeError, ValueError, RecursionError) as problem:
        is_deep = isinstance(problem, RecursionError) or "nested" in str(problem)
        raise _Unfit(f"its schema is {'nested too deep' if is_deep else 'not JSON'}") from None
    except jsonschema.SchemaError as problem:
        raise _Unfit(f"its schema is not valid: {plain(problem.message, 200)}") from None
    # Which dialect it is in, nobody asks; some providers refuse a request that says it.
    schema.pop("$schema", None)
    if schema.setdefault("type", "object") != "object":
        raise _Unfit("its schema is not one of an object")
    return schema


def plain(text: str, longest: int | None = None) -> str:
    """`text` without control characters and characters nobody sees, cut to `longest`."""
    kept = strip_control_chars(text).strip()
    return kept if longest is None or len(kept) <= longest else f"{kept[: longest - 1]}…"


def with_unique_names(
    scripts: Sequence[FoundTool], of_servers: Sequence[FoundTool], reserved: Collection[str]
) -> tuple[list[FoundTool], list[str]]:
    """The first `MAX_TOOLS` tools, each name once, and a line for each that gets its source in front, and if there
    are more.

    `reserved`: the names of the agent's own.
    """
    listed = Counter(tool.spec.name for tool in of_servers)
    # Both servers' tools are renamed, or the name would be another's on the day the first one is away.
    owners = {name: "another server" for name, times in listed.items() if times > 1}
    owners |= dict.fromkeys(reserved, "the agent")
    named, problems = [], []
    for tool in (*scripts, *of_servers):
        own = tool.spec.name
        name, number = own, 1
        while name in owners:
            name = f"{tool.source}_{own}{f'_{number}' if number > 1 else ''}"
            number += 1
        if name != own:
            problems.append(f"{tool.source}: {own}: {owners[own]} has a tool of that name; it is called {name} here")
        owners[name] = tool.source
        named.append(replace(tool, spec=structs.replace(tool.spec, name=name)))
    if len(named) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} tools count; take out servers or scripts that are not needed")
    return named[:MAX_TOOLS], problems


def describe(tools: Sequence[FoundTool]) -> str:
    """A table for the command line: server, tool, its arguments (`?`: may be left out), what it does."""
    rows = [["SERVER", "TOOL", "PARAMETERS", "DESCRIPTION"]]
    for tool in tools:
        parameters, summary = argument_list(tool.spec.parameters) or "-", tool.spec.description.split("\n")[0]
        names = [plain(" ".join(name.split())) for name in (tool.source, tool.spec.name, parameters)]
        rows.append([*names, plain(" ".join(summary.split()), 60)])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in rows)
