"""Brings parameters as a model wrote them into the form that a tool wants."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.core.strict_json import parse_json


def map_parameters(spec: ToolSpec, given: dict[str, Any]) -> dict[str, Any]:
    """`given` in the form the tool wants, as far as what is meant cannot be in doubt.

    Parameters wrapped once more are unwrapped. A single text under a wrong name gets the name of the one text that is
    lacking: `question`, which wants `{"question": ...}`, understands `{"query": ...}`, and `llmquery` the other way
    round. A required list that is left out or null is empty; what a closed schema does not know is left out. Text that
    stands for a number, a truth value, a list or an object is read as that where the schema wants one.
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
    lacking = [name for name in required or properties if name not in given]
    strange = [name for name in given if name not in properties]
    one_text = len(lacking) == len(strange) == 1 and isinstance(given[strange[0]], str)
    if one_text and _type_of(properties.get(lacking[0])) in ("string", ""):
        given[lacking[0]] = given.pop(strange[0])
    if spec.parameters.get("additionalProperties") is False:
        given = {name: value for name, value in given.items() if name in properties}
    return {name: _read_as_wanted(spec, name, value) for name, value in given.items()}


def _read_as_wanted(spec: ToolSpec, name: str, value: Any) -> Any:
    """What the text `value` says as JSON, if the schema refuses it as text and takes it as that; else `value`."""
    if not isinstance(value, str) or _fits(spec, name, value):
        return value
    text = value.strip()
    try:
        plain = text.lower() if text.lower() in ("true", "false") else text
        read = parse_json(plain, lenient=True)
    except ValueError:
        return value
    # A float may hold fewer digits than were written.
    is_lossy = isinstance(read, float) and Decimal(repr(read)) != Decimal(text)
    return value if is_lossy or not _fits(spec, name, read) else read


def _fits(spec: ToolSpec, name: str, value: Any) -> bool:
    try:
        check_arguments(replace(spec, parameters={**spec.parameters, "required": []}), {name: value})
    except ToolError:
        return False
    return True


def _type_of(schema: Any) -> Any:
    return schema.get("type", "") if isinstance(schema, dict) else ""
