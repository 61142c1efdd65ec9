"""A JSON-schema validator for schemas of strangers: no pattern runs away, no reference goes on for ever.

Patterns run on an engine whose time is linear in the text (Rust's, which comes with pydantic); one that it does not
know, with a look-around or a back-reference, says nothing. References are followed `MOST_REFERENCES` times, and nothing
is fetched.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any

import jsonschema
import referencing
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

MOST_REFERENCES = 2_000
LONGEST_PATTERN = 1_000
MOST_SECONDS = 1.0
"""Of the processor for one check: alternatives multiply, and patterns take long to build."""
MOST_PROBLEMS = 100
"""That are looked for; the first of them is told."""
_base = jsonschema.Draft202012Validator
_followed: ContextVar[list[int]] = ContextVar("followed")
_until: ContextVar[float] = ContextVar("until")


class Endless(Exception):
    """A schema that multiplies, goes in circles or takes too long."""


def problems_of(schema: Mapping[str, Any], value: Any) -> list[jsonschema.ValidationError]:
    """What of `value` breaks `schema`, in a fixed order; raises whatever a broken schema makes the library raise."""
    _followed.set([0])
    _until.set(time.thread_time() + MOST_SECONDS)
    # A registry of its own, because the default one fetches what a schema refers to.
    validator = _Validator(schema, registry=referencing.Registry())
    return sorted(islice(validator.iter_errors(value), MOST_PROBLEMS), key=str)


@functools.lru_cache(maxsize=32)  # one of them may take 10 MB
def _compiled(pattern: str) -> SchemaValidator | None:
    if len(pattern) > LONGEST_PATTERN:
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _finds(pattern: Any, text: str) -> bool:
    """Whether `pattern` is found in `text`, or cannot be looked for."""
    matcher = _compiled(pattern) if isinstance(pattern, str) else None
    if matcher is None:
        return True
    try:
        matcher.validate_python(text.encode("utf-8", "replace").decode())
    except ValidationError:
        return False
    return True


def _pattern(validator: Any, pattern: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not _finds(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    for pattern, inner in given.items() if isinstance(value, dict) else ():
        for name, each in value.items():
            if _compiled(pattern) is not None and _finds(pattern, name):
                yield from validator.descend(each, inner, path=name, schema_path=pattern)


def _additional(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    patterns = schema.get("patternProperties")
    if patterns and isinstance(value, dict):
        # What one of them covers is not additional.
        value = {name: each for name, each in value.items() if not any(_finds(pattern, name) for pattern in patterns)}
        schema = {key: inner for key, inner in schema.items() if key != "patternProperties"}
    yield from _base.VALIDATORS["additionalProperties"](validator, given, value, schema) or ()


def _reference(keyword: str) -> Any:
    def follow(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        followed = _followed.get()
        followed[0] += 1
        if followed[0] > MOST_REFERENCES:
            raise Endless
        yield from _base.VALIDATORS[keyword](validator, given, value, schema) or ()

    return follow


def _nothing(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    yield from ()


def _unique(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    # The library compares each with each.
    is_checked = given is True and isinstance(value, list)
    if is_checked and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
        yield jsonschema.ValidationError(f"{value!r} has non-unique elements")


def _timed(check: Any) -> Any:
    def within(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        if time.thread_time() > _until.get():
            raise Endless
        yield from check(validator, given, value, schema) or ()

    return within


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    _base,
    {
        **{name: _timed(check) for name, check in _base.VALIDATORS.items()},
        "uniqueItems": _unique,
        "pattern": _timed(_pattern),
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional,
        # The library follows patterns and references for these on a way of its own.
        "unevaluatedProperties": _nothing,
        "unevaluatedItems": _nothing,
        "$ref": _reference("$ref"),
        "$dynamicRef": _reference("$dynamicRef"),
    },
)
