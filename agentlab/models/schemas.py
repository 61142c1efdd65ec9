"""Makes any JSON schema one that the embedded model's grammar converter accepts.

    simplify_schema({"type": "dict", "properties": {"n": {"type": "float", "pattern": "x"}}})
    # {"type": "object", "properties": {"n": {"type": "number"}}, "required": [], "additionalProperties": False}

Tools come from strangers' data sets with Python's type names, half-filled objects and keywords the converter refuses.
What is kept still shapes the reply; what is dropped only makes it less constrained. Nothing here validates arguments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_TYPES = {
    "object": ("object", "dict", "dictionary", "map", "hashmap", "mapping", "struct", "record"),
    "array": ("array", "list", "tuple", "set", "arraylist", "sequence"),
    "string": ("string", "str", "text", "char", "character", "date", "datetime", "time", "uri", "url", "uuid", "email"),
    "integer": ("integer", "int", "long", "short", "byte", "bigint", "int32", "int64"),
    "number": ("number", "float", "double", "decimal", "real"),
    "boolean": ("boolean", "bool"),
    "null": ("null", "none", "nonetype", "void"),
}
_KNOWN = {spelling: name for name, spellings in _TYPES.items() for spelling in spellings}
_ALTERNATIVES = ("anyOf", "oneOf")
_MAX_DEPTH = 12
_MAX_PARTS = 2000
_MAX_ITEMS = 64


def simplify_schema(schema: Any) -> dict[str, Any]:
    """An equally shaped schema of types, properties, items, enums, alternatives and bounds; `{}` allows anything.

    References are written out in place; below 12 levels or after 2,000 parts, anything goes. Objects become closed
    where their properties are known.
    """
    return _simplify(schema, _Root(schema if isinstance(schema, Mapping) else {}), _MAX_DEPTH)


class _Root:
    """The schema references point into, and how many more parts may be written out: references can multiply."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.parts_left = _MAX_PARTS


def _simplify(schema: Any, root: _Root, depth: int) -> dict[str, Any]:
    root.parts_left -= 1
    if not isinstance(schema, Mapping) or depth == 0 or root.parts_left < 0:
        return {}
    if isinstance(reference := schema.get("$ref"), str):
        return _simplify(_follow(reference, root), root, depth - 1)
    if "const" in schema and _is_json(schema["const"]):
        return {"const": schema["const"]}
    if isinstance(choices := schema.get("enum"), list) and (choices := [c for c in choices if _is_json(c)]):
        return {"enum": choices}
    for key in _ALTERNATIVES:
        if isinstance(options := schema.get(key), list) and options:
            return _any_of([_simplify(_with_siblings(option, schema), root, depth - 1) for option in options])
    if isinstance(parts := schema.get("allOf"), list) and parts:
        return _simplify(_merged([schema, *parts], root), root, depth - 1)
    names = _type_names(schema)
    if schema.get("nullable") is True and "null" not in names:
        names.append("null")
    return _any_of([_typed(name, schema, root, depth) for name in names]) if names else {}


def _follow(reference: str, root: _Root) -> Any:
    """The part of the root that a local reference points at; None (anything goes) where it points at nothing."""
    target: Any = root.schema
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step and not isinstance(target, Mapping):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if step else target
    return target


def _with_siblings(option: Any, schema: Mapping[str, Any]) -> Any:
    """An alternative inherits the type and properties written beside the list of alternatives."""
    if not isinstance(option, Mapping):
        return option
    beside = {key: value for key, value in schema.items() if key not in (*_ALTERNATIVES, "allOf")}
    return {**beside, **option}


def _merged(parts: list[Any], root: _Root) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
            part = _follow(part["$ref"], root)
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                whole[key] = {**whole.get(key, {}), **value}
            elif key == "required" and isinstance(value, list):
                whole[key] = [*whole.get(key, []), *value]
            elif key != "allOf":
                whole.setdefault(key, value)
    return whole


def _type_names(schema: Mapping[str, Any]) -> list[str]:
    declared = schema.get("type")
    spelled = declared if isinstance(declared, list) else [declared]
    names = [_KNOWN[s.strip().lower()] for s in spelled if isinstance(s, str) and s.strip().lower() in _KNOWN]
    if not names and "properties" in schema:
        names = ["object"]
    if not names and "items" in schema:
        names = ["array"]
    return list(dict.fromkeys(names))


def _typed(name: str, schema: Mapping[str, Any], root: _Root, depth: int) -> dict[str, Any]:
    if name == "object":
        return _object(schema, root, depth)
    if name == "array":
        return _array(schema, root, depth)
    return {"type": name, **(_bounds(schema, whole=name == "integer") if name in ("integer", "number") else {})}


def _object(schema: Mapping[str, Any], root: _Root, depth: int) -> dict[str, Any]:
    declared = schema.get("properties")
    properties = {
        str(key): _simplify(value, root, depth - 1)
        for key, value in (declared.items() if isinstance(declared, Mapping) else ())
    }
    required = schema.get("required")
    needed = [key for key in properties if isinstance(required, list) and key in required]
    others = schema.get("additionalProperties")
    more: Any = not properties  # an object nobody described may hold anything
    if others is False or (others is True and not properties):
        more = others
    elif isinstance(others, Mapping):
        more = _simplify(others, root, depth - 1)
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": more}


def _array(schema: Mapping[str, Any], root: _Root, depth: int) -> dict[str, Any]:
    items = schema.get("items")
    if isinstance(items, list):  # a tuple: every position may hold what any of them may
        inner = _any_of([_simplify(item, root, depth - 1) for item in items]) if items else {}
    else:
        inner = _simplify(items, root, depth - 1)
    limits = {}
    least, most = schema.get("minItems"), schema.get("maxItems")
    if type(least) is int and 0 < least <= _MAX_ITEMS:
        limits["minItems"] = least
    if type(most) is int and limits.get("minItems", 0) <= most <= _MAX_ITEMS:
        limits["maxItems"] = most
    return {"type": "array", "items": inner, **limits}


def _bounds(schema: Mapping[str, Any], whole: bool) -> dict[str, Any]:
    found = {key: schema[key] for key in ("minimum", "maximum") if _is_finite(schema.get(key))}
    if whole:
        found = {key: math.ceil(v) if key == "minimum" else math.floor(v) for key, v in found.items()}
    return found if found.get("minimum", -math.inf) <= found.get("maximum", math.inf) else {}


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


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
