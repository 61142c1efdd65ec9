"""Simplifies JSON schemas of tools and replies, and validates arguments against them.

    simplify_schema({"type": "dict", "properties": {"n": {"type": "float", "pattern": "x"}}})
    # {"type": "object", "properties": {"n": {"type": "number"}}, "required": [], "additionalProperties": False}

Schemas come from untrusted servers and data sets. They may contain Python's type names, incomplete objects, broken
references and keywords that a grammar cannot express. No function assumes a valid schema or fetches a reference.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec

_ALTERNATIVES = ("anyOf", "oneOf")

_TYPES = {
    "object": ("object", "dict", "dictionary", "map", "hashmap", "mapping", "struct", "record"),
    "array": ("array", "list", "tuple", "set", "arraylist", "sequence"),
    "string": ("string", "str", "text", "char", "character", "date", "datetime", "time", "uri", "url", "uuid", "email"),
    "integer": ("integer", "int", "long", "short", "byte", "bigint", "int32", "int64"),
    "number": ("number", "float", "double", "decimal", "real"),
    "boolean": ("boolean", "bool"),
    "null": ("null", "none", "nonetype", "void"),
}
_TYPE_NAMES = {spelling: name for name, spellings in _TYPES.items() for spelling in spellings}
_MAX_DEPTH = 12
_MAX_PARTS = 2000
_MAX_ITEMS = 64
_MAX_PROBLEMS = 100
"""Problems to search for; only the first in alphabetical order is reported."""


@functools.cache
def load_jsonschema() -> Any:
    """Import and return the library jsonschema; call it before the first timed tool run.

    With Jupyter installed, jsonschema would spend a second on a grammar for IRIs, which no check here needs.
    """
    unwanted = "rfc3987_syntax"
    blocked = unwanted not in sys.modules
    if blocked:
        sys.modules[unwanted] = None  # type: ignore[assignment]
    try:
        import jsonschema
    finally:
        if blocked:
            del sys.modules[unwanted]
    return jsonschema


def check_arguments(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    """Raise ToolError, with a sentence that helps the model, if `arguments` do not fit the schema of `spec`.

    Types, properties, enums, alternatives, bounds and lengths are checked, which is fast for every schema. The tool
    itself checks patterns and other keywords.
    """
    checker = load_jsonschema().Draft202012Validator(simplify_schema(spec.parameters, closed=False))
    problems = islice(checker.iter_errors(arguments), _MAX_PROBLEMS)
    if first := min(problems, key=str, default=None):
        location = ".".join(str(part) for part in first.absolute_path) or "arguments"
        raise ToolError(f"{spec.name}: {location}: {first.message[:300]}")


def properties_of(schema: Any) -> Mapping[str, Any]:
    """Return the properties of a schema; empty if it has none or is invalid."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def strict_object_schema(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, all required except the `optional` ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def resolve_ref(root: Any, reference: Any) -> Any:
    """Return the schema that a `$ref` within the document `root` points to; None if there is none."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    node = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and re.fullmatch("[0-9]{1,5}", key) and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node if isinstance(node, (Mapping, bool)) else None


def simplify_schema(schema: Any, *, closed: bool = True) -> dict[str, Any]:
    """Return a schema of types, properties, items, enums, alternatives and bounds only; `{}` allows anything.

    Dropped keywords only make a constrained reply less constrained. References are replaced by their schemas. Below 12
    levels or after 2,000 parts anything is allowed. Objects with known properties allow no others. `closed=False`, for
    existing values, allows them unless the schema forbids them.
    """
    return _Simplifier(schema, closed).plain(schema, _MAX_DEPTH)


class _Simplifier:
    def __init__(self, root: Any, closed: bool) -> None:
        self._root = root
        self._closed = closed
        self._parts_left = _MAX_PARTS
        """Parts that may still be simplified: nested references can multiply."""

    def plain(self, node: Any, depth: int) -> dict[str, Any]:
        self._parts_left -= 1
        if not isinstance(node, Mapping) or depth == 0 or self._parts_left < 0:
            return {}
        if isinstance(node.get("$ref"), str):
            return self.plain(resolve_ref(self._root, node["$ref"]), depth - 1)
        if "const" in node and _is_json(node["const"]):
            return {"const": node["const"]}
        choices = node.get("enum")
        if isinstance(choices, list) and (choices := [choice for choice in choices if _is_json(choice)]):
            return {"enum": choices}
        for keyword in _ALTERNATIVES:
            if isinstance(options := node.get(keyword), list) and options:
                return _any_of([self.plain(_with_siblings(option, node), depth - 1) for option in options])
        if isinstance(parts := node.get("allOf"), list) and parts:
            return self.plain(self._merged([node, *parts]), depth - 1)
        return _any_of([{"type": name, **self._details(name, node, depth)} for name in _type_names(node)])

    def _details(self, name: str, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        match name:
            case "object":
                return self._object(node, depth)
            case "array":
                return self._array(node, depth)
            case "integer" | "number":
                return _bounds(node, whole=name == "integer")
            case "string" if not self._closed:
                return {key: node[key] for key in ("minLength", "maxLength") if type(node.get(key)) is int}
        return {}

    def _merged(self, parts: list[Any]) -> dict[str, Any]:
        """Return one schema with the keywords of all parts; if two parts differ, the first one counts."""
        merged: dict[str, Any] = {}
        for part in parts:
            if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
                part = resolve_ref(self._root, part["$ref"])
            for key, value in part.items() if isinstance(part, Mapping) else ():
                if key == "properties" and isinstance(value, Mapping):
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required" and isinstance(value, list):
                    merged[key] = [*merged.get(key, []), *value]
                elif key != "allOf":
                    merged.setdefault(key, value)
        return merged

    def _object(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = {str(name): self.plain(value, depth - 1) for name, value in properties_of(node).items()}
        required = node.get("required")
        needed = [name for name in properties if isinstance(required, list) and name in required]
        others = node.get("additionalProperties")
        additional: Any = not (self._closed and properties)  # an object without described properties may hold anything
        if others is False:
            additional = not self._closed and "patternProperties" in node
        elif isinstance(others, Mapping):
            additional = self.plain(others, depth - 1)
        return {"properties": properties, "required": needed, "additionalProperties": additional}

    def _array(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        items = node.get("items")
        # Every position of a tuple allows the values of all its positions.
        either = items if isinstance(items, list) else [items]
        inner = _any_of([self.plain(item, depth - 1) for item in either])
        minimum, maximum = node.get("minItems"), node.get("maxItems")
        limits = {}
        if type(minimum) is int and 0 < minimum <= _MAX_ITEMS:
            limits["minItems"] = minimum
        if type(maximum) is int and limits.get("minItems", 0) <= maximum <= _MAX_ITEMS:
            limits["maxItems"] = maximum
        return {"items": inner, **limits}


def _with_siblings(option: Any, node: Mapping[str, Any]) -> Any:
    """Return an alternative, with the type and properties of the schema that lists the alternatives."""
    if not isinstance(option, Mapping):
        return option
    return {key: value for key, value in node.items() if key not in (*_ALTERNATIVES, "allOf")} | dict(option)


def _type_names(node: Mapping[str, Any]) -> list[str]:
    declared = node.get("type")
    spelled = declared if isinstance(declared, list) else [declared]
    names = [_TYPE_NAMES[s.strip().lower()] for s in spelled if isinstance(s, str) and s.strip().lower() in _TYPE_NAMES]
    names = names or [name for name, keyword in (("object", "properties"), ("array", "items")) if keyword in node][:1]
    return list(dict.fromkeys([*names, "null"] if node.get("nullable") is True else names))


def _bounds(node: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    given = {key: node[key] for key in ("minimum", "maximum") if type(node.get(key)) in (int, float)}
    bounds = {key: bound for key, bound in given.items() if math.isfinite(bound)}
    if whole:
        bounds = {key: math.ceil(bound) if key == "minimum" else math.floor(bound) for key, bound in bounds.items()}
    return bounds if bounds.get("minimum", -math.inf) <= bounds.get("maximum", math.inf) else {}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    distinct = [option for index, option in enumerate(options) if option not in options[:index]]
    if {} in distinct or not distinct:
        return {}
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
