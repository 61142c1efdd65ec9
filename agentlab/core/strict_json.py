"""The one way in for JSON and YAML that others may have written: what cannot be used is a ValueError of one line.

parse_json(b'{"n": 1e999}')            # ValueError: a number is too large
parse_json('{"n": NaN}', lenient=True) # {"n": None}
parse_yaml("a: 1\\na: 2")               # ValueError: line 2: the key 'a' stands there twice
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from typing import Any

DEEPEST = 100
"""Levels of nesting; what goes deeper breaks those who walk over it."""


def parse_json(text: str | bytes, *, lenient: bool = False) -> Any:
    """Plain JSON: no NaN, no infinity, no key twice, nothing deep. `lenient` reads the first two as null."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"the key {max(keys, key=keys.count)!r} stands there twice")
        return found

    def constant(name: str) -> None:
        if not lenient:
            raise ValueError(f"{name} is not JSON")

    def finite(digits: str) -> float | None:
        number = float(digits)
        if not math.isfinite(number):
            constant("a number that is too large")
            return None
        return number

    try:
        parsed = json.loads(text, object_pairs_hook=unique, parse_constant=constant, parse_float=finite)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from None
    check_depth(parsed)
    return parsed


def check_depth(value: Any, levels: int = DEEPEST) -> None:
    """Raise ValueError where lists and mappings stand in each other deeper than that."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inner and levels == 0:
        raise ValueError(f"nested deeper than {DEEPEST} levels")
    for each in inner:
        if isinstance(each, (dict, list)):
            check_depth(each, levels - 1)


def parse_yaml(text: str) -> Any:
    """One document of plain values, no key of a mapping twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            seen = set()
            for key, _ in node.value:
                # What `<<` brings along may be said again.
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        where = f"line {key.start_mark.line + 1}"
                        raise ValueError(f"{where}: the key {key.value!r} stands there twice")
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe one
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as problem:
        raise ValueError(f"not YAML: {' '.join(str(problem).split())}") from None
