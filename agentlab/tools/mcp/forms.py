"""Forms of MCP servers, asked field by field of the user of a chat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import ToolContext
from agentlab.core.schemas import check_arguments, properties_of
from agentlab.core.strict_json import parse_json
from agentlab.tools.mcp.listing import plain

NO = "/no"


async def ask_form(context: ToolContext, question: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the user's answer to `question`, an object that fits `schema`; None if the user declines or is absent.

    A field that does not fit is asked again. An empty text stands for the default, or leaves out an optional field.
    """
    answer: dict[str, Any] = {}
    for name, field in (dict(properties_of(schema)) or {"": {}}).items():
        rest = {key: value for key, value in field.items() if key not in ("title", "description")}
        details = "; ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items())
        label = f"{name}: {field.get('description') or field.get('title') or name}" if name else "Enter accepts"
        hint = plain(f"{'' if answer else question}\n{label} ({details or 'no fields'}); {NO} declines", 2_000)
        required = [name] if name in (schema.get("required") or ()) else []
        spec = ToolSpec(name=name, description="", parameters={"properties": {name: field}, "required": required})
        given: dict[str, Any] | None = None
        while given is None:
            typed = await context.ask_user(hint)
            if typed is None or typed.strip() == NO:
                return None
            given = {name: _value(field, typed.strip())} if name and typed.strip() else {}
            if "default" in field:
                given.setdefault(name, field["default"])
            try:
                check_arguments(spec, given)
            except ToolError as misfit:
                hint, given = f"{misfit}; type it again, or {NO}", None
        answer |= given
    return answer


def _value(field: Mapping[str, Any], typed: str) -> Any:
    """Return `typed`, read as JSON unless the field is a text."""
    with contextlib.suppress(ValueError):
        return typed if field.get("type") == "string" else parse_json(typed)
    return typed
