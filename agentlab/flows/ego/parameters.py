"""Repairs the parameters of a model's tool call to match the tool's schema."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.core.strict_json import parse_json


def map_parameters(spec: ToolSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Return `given` in the form of the tool's schema, as far as the repair is unambiguous.

    * Parameters inside an object `parameters` or `arguments` are unwrapped.
    * A single text under a wrong name gets the name of the only missing text. So `question`, which needs
      `{"question": ...}`, accepts `{"query": ...}`, and `llmquery` the reverse.
    * A required list that is missing or null becomes empty.
    * Parameters that a closed schema does not contain are dropped.
    * A text is parsed as a number, boolean, list or object if the schema requires one.
    """
    properties = spec.parameters.get("properties")
    if not isinstance(properties, dict):
        return given
    required = spec.parameters.get("required")
    required = required if isinstance(required, list) else []
    if len(given) == 1 and (wrapper := next(iter(given))) in ("parameters", "arguments") and wrapper not in properties:
        inner = given[wrapper]
        given = inner if isinstance(inner, dict) else given
    given = dict(given)
    for name in required:
        if given.get(name) is None and _type_of(properties.get(name)) == "array":
            given[name] = []
    missing = [name for name in required or properties if name not in given]
    unknown = [name for name in given if name not in properties]
    one_text = len(missing) == len(unknown) == 1 and isinstance(given[unknown[0]], str)
    if one_text and _type_of(properties.get(missing[0])) in ("string", ""):
        given[missing[0]] = given.pop(unknown[0])
    if spec.parameters.get("additionalProperties") is False:
        given = {name: value for name, value in given.items() if name in properties}
    return {name: _parse_if_required(spec, name, value) for name, value in given.items()}


def _parse_if_required(spec: ToolSpec, name: str, value: Any) -> Any:
    """Return the text `value` parsed as JSON if the schema accepts only that; otherwise return `value`."""
    if not isinstance(value, str) or _fits(spec, name, value):
        return value
    text = value.strip()
    try:
        plain = text.lower() if text.lower() in ("true", "false") else text
        parsed = parse_json(plain, lenient=True)
    except ValueError:
        return value
    # A float may hold fewer digits than the text.
    is_lossy = isinstance(parsed, float) and Decimal(repr(parsed)) != Decimal(text)
    return value if is_lossy or not _fits(spec, name, parsed) else parsed


def _fits(spec: ToolSpec, name: str, value: Any) -> bool:
    try:
        check_arguments(replace(spec, parameters={**spec.parameters, "required": []}), {name: value})
    except ToolError:
        return False
    return True


def _type_of(schema: Any) -> Any:
    return schema.get("type", "") if isinstance(schema, dict) else ""
