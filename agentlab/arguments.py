"""Checks the arguments of a tool call against the tool's JSON schema, with an error a model can act on."""

from __future__ import annotations

from typing import Any

from agentlab.errors import ToolError
from agentlab.messages import ToolSpec


def check_arguments(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    """Raise ToolError where `arguments` break the schema of `spec`."""
    import jsonschema

    try:
        problems = sorted(jsonschema.Draft202012Validator(spec.parameters).iter_errors(arguments), key=str)
    except jsonschema.exceptions.UnknownType:
        # Schemas come from other people's data sets, where `dict` or `float` stand for JSON types; the call goes ahead.
        return
    if problems:
        first = problems[0]
        where = ".".join(str(part) for part in first.absolute_path) or "arguments"
        raise ToolError(f"{spec.name}: {where}: {first.message[:300]}")
