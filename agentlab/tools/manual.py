"""Lists and manuals of tools for the prompts of flows whose model first chooses a tool and then its arguments.

    tool_list_for_prompt(session.tool_specs())
    # - search_web(query): Search the web and return a summary of the best pages.

The flow chooses the tools that it lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.core.schemas import properties_of

MANUAL_LENGTH = 10_000
"""Characters of the manual of all tools."""


def find_tool(specs: Iterable[ToolSpec], name: str) -> ToolSpec | None:
    return next((spec for spec in specs if spec.name == name), None)


def tool_names(specs: Iterable[ToolSpec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in specs)


def tool_list_for_prompt(specs: Iterable[ToolSpec]) -> str:
    """Return one line per tool: name, arguments (`?` marks optional ones) and description; "" without tools."""
    return "\n".join(f"- {spec.name}({argument_list(spec.parameters)}): {_line(spec.description)}" for spec in specs)


def tool_manual(tools: Sequence[Tool]) -> str:
    """Return `tool_list_for_prompt` with the instruction of each tool below its line; "" without tools.

    All tools share `MANUAL_LENGTH`, so the entries of many tools are truncated.
    """
    max_chars = max(80, MANUAL_LENGTH // max(1, len(tools)))
    entries = []
    for tool in tools:
        entry = f"{tool_list_for_prompt([tool.spec])}\n  {instruction_of(tool)}".replace("\n", "\n  ")
        entries.append(entry if len(entry) <= max_chars else f"{entry[:max_chars]} ...")
    return "\n".join(entries)


def instruction_of(tool: Tool) -> str:
    """Return the tool's instruction for its arguments; without one, make it from the schema."""
    instruction = getattr(tool, "instruction", "")
    if instruction:
        return str(instruction)
    properties = properties_of(tool.spec.parameters)
    if not properties:
        return "This tool takes no arguments: write {}."
    lines = (
        f"- {name} ({_text(schema, 'type') or 'any'}): {_line(_text(schema, 'description'))}"
        for name, schema in properties.items()
    )
    return "Write a JSON object with:\n" + "\n".join(line.removesuffix(": ") for line in lines)


def argument_list(parameters: dict[str, Any]) -> str:
    required = parameters.get("required") or ()
    return ", ".join(name if name in required else f"{name}?" for name in properties_of(parameters))


def _text(schema: Any, key: str) -> str:
    value = schema.get(key) if isinstance(schema, dict) else None
    return value if isinstance(value, str) else ""


def _line(text: str) -> str:
    return " ".join(text.split())
