"""What a prompt says of tools, for flows that have the model choose one first and write its arguments later.

    tool_list_for_prompt(session.tool_specs())
    # - search_web(query): Search the web and return a summary of the best pages.

Which of a session's tools a flow offers is its own business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.core.schemas import properties_of

MANUAL_LENGTH = 10_000
"""Characters of a prompt for all tools and how to write their arguments."""


def find_tool(specs: Iterable[ToolSpec], name: str) -> ToolSpec | None:
    return next((spec for spec in specs if spec.name == name), None)


def tool_names(specs: Iterable[ToolSpec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in specs)


def tool_list_for_prompt(specs: Iterable[ToolSpec]) -> str:
    """A line a tool: its name, its arguments (`?` marks those that may be left out), what it does; "" for none."""
    return "\n".join(f"- {spec.name}({argument_list(spec.parameters)}): {_line(spec.description)}" for spec in specs)


def tool_manual(tools: Sequence[Tool]) -> str:
    """As `tool_list_for_prompt`, with how to write the arguments below each tool; "" for none.

    Tools share `MANUAL_LENGTH`: with many of them each is told in fewer words.
    """
    share = max(80, MANUAL_LENGTH // max(1, len(tools)))
    entries = []
    for tool in tools:
        entry = f"{tool_list_for_prompt([tool.spec])}\n  {instruction_of(tool)}".replace("\n", "\n  ")
        entries.append(entry if len(entry) <= share else f"{entry[:share]} ...")
    return "\n".join(entries)


def instruction_of(tool: Tool) -> str:
    """How to write the arguments of `tool`: its own words, or what its schema says where it has none."""
    own = getattr(tool, "instruction", "")
    if own:
        return str(own)
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
