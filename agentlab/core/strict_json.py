"""Parses untrusted JSON and YAML; raises a ValueError of one line for anything unusable.

parse_json(b'{"n": 1e999}')            # ValueError: a number is too large
parse_json('{"n": NaN}', lenient=True) # {"n": None}
parse_yaml("a: 1\\na: 2")               # ValueError: line 2: duplicate key 'a'
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

import msgspec

MAX_DEPTH = 100
"""Levels of nesting; deeper values break recursive functions."""
MAX_PARTS = 1_000_000
"""Lists and mappings on one level."""
MAX_INTEGER_DIGITS = 30
MAX_ABS_NUMBER = 1e100
"""Limits of integers and floats; sums of larger numbers would be infinite."""
MAX_REPLY_CHARS = 100_000
MAX_BRACES = 100
"""Maximum number of opening braces at which a reply is parsed; a reply of braces alone would take seconds."""
_decode = msgspec.json.Decoder().decode


def parse_json(text: str | bytes, *, lenient: bool = False) -> Any:
    """Return the value of plain JSON. Raises ValueError for NaN, huge numbers, duplicate keys and deep nesting.

    `lenient`, for the output of models, reads such numbers as null and keeps the last value of a duplicate key.
    """
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        parsed = (LENIENT if lenient else _STRICT).decode(decoded)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    if decoded.count("[") + decoded.count("{") > MAX_DEPTH:  # most rows have fewer brackets and need no walk
        check_depth(parsed)
    return parsed


def load_json(data: bytes) -> Any:
    """Return the value of JSON that agentlab wrote: fast, or by `parse_json` if msgspec rejects it."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return parse_json(data)


def join_surrogates(text: str) -> str:
    """Return `text` with surrogate pairs joined, and half a pair replaced, because UTF-8 has neither."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def check_depth(value: Any, levels: int = MAX_DEPTH) -> None:
    """Raise ValueError if lists and mappings are nested deeper than `levels`, or if a level has too many."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels + 1):
        inside = (
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        )
        # YAML aliases multiply: nine lines with nine names each become a billion lists.
        level = list(islice(inside, MAX_PARTS + 1))
        if not level:
            return
        if len(level) > MAX_PARTS:
            raise ValueError(f"more than {MAX_PARTS} parts")
    raise ValueError(f"nested deeper than {levels} levels")


def sanitise(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a value that `parse_json` reads back: NaN, huge numbers and parts nested too deep become null.

    Raises RecursionError for a value nested a thousand levels deep.
    """
    if isinstance(value, (dict, list, tuple)):
        if levels == 0:
            return None
        if isinstance(value, dict):
            return {key: sanitise(inner, levels - 1) for key, inner in value.items()}
        return [sanitise(inner, levels - 1) for inner in value]
    if isinstance(value, float):
        return value if abs(value) <= MAX_ABS_NUMBER else None
    return value if not isinstance(value, int) or abs(value) < 10**MAX_INTEGER_DIGITS else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {max(keys, key=keys.count)!r:.60}")
    return mapping


def agreeing(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; raises ValueError if a key has two different values."""
    mapping = dict(pairs)
    if any(mapping[key] != value for key, value in pairs):
        raise ValueError("duplicate key")
    return mapping


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_float(digits: str) -> float:
    if (number := _finite_or_none(digits)) is None:
        raise ValueError("a number is too large")
    return number


def _finite_or_none(digits: str) -> float | None:
    return number if abs(number := float(digits)) <= MAX_ABS_NUMBER else None


def _parse_integer(digits: str) -> int:
    if (number := _whole_or_none(digits)) is None:
        raise ValueError("a number is too large")
    return number


def _whole_or_none(digits: str) -> int | None:
    return int(digits) if len(digits.removeprefix("-")) <= MAX_INTEGER_DIGITS else None


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_parse_float, parse_int=_parse_integer
)
LENIENT = json.JSONDecoder(
    # A model writes raw line ends into its strings.
    strict=False,
    parse_constant=lambda name: None,
    parse_float=_finite_or_none,
    parse_int=_whole_or_none,
)


def objects_in(text: str, decoder: json.JSONDecoder = LENIENT) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a model's text, which may contain other text around them."""
    text = text[:MAX_REPLY_CHARS]
    at = text.find("{")
    for _ in range(MAX_BRACES):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
            check_depth(value)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def load_own_yaml(text: str) -> Any:
    """Return the values of a YAML file of the package: ten times as fast as `parse_yaml`, which checks it."""
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe


def parse_yaml(text: str) -> Any:
    """Return the plain values of one YAML document; raises ValueError, for a duplicate key too."""
    import yaml

    class Loader(yaml.SafeLoader):
        levels = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            # The library takes seconds to read deep nesting, and then raises RecursionError.
            self.levels += 1
            if self.levels > MAX_DEPTH + 1:
                raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
            try:
                return super().compose_node(parent, index)
            finally:
                self.levels -= 1

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            seen = set()
            for key, _ in node.value:
                # A key may override one that `<<` merges in.
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise ValueError(f"line {key.start_mark.line + 1}: duplicate key {key.value!r}")
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        parsed = yaml.load(text, Loader)  # noqa: S506 - a safe one
        check_depth(parsed)
        return parsed
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, OverflowError) as problem:
        # The library raises errors of many types for values such as `!!int ''`.
        raise ValueError(f"not YAML: {' '.join(str(problem).split())[:300]}") from None
