"""What an MCP server lists: defused, mended or refused, and checked in bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.tools.mcp.listing import Refused, accepted, listing_row, sound_schema
from support.mcp_server import LIARS


def test_what_a_server_lists_is_defused_or_refused():
    specs, problems = accepted("s", list(LIARS.values()))
    assert [spec.name for spec in specs] == ["good", "numbered", "long"]
    assert [spec.description[:5] for spec in specs] == ["Fine.", "", "[31mw"]
    assert len(specs[2].description) == 2_000
    assert problems == (
        "s: bare: is left out: its schema is not an object",
        "s: text: is left out: its schema is not an object",
        "s: listed: is left out: its schema is not one of an object",
        "s: invalid: is left out: its schema is not valid: 'dict' is not valid under any of the given schemas",
        "s: numbered: its description is no text and is left out",
        "s: good: is listed twice; the first counts",
        "s: tool 8 is left out: it has no name that can be used",
        "s: tool 9 is left out: it has no name that can be used",
        "s: long: its description is cut to 2,000 visible characters",
    )
    assert accepted("s", [listing_row(spec) for spec in specs]) == (specs, ()), "what was accepted once is as it stands"


def test_a_schema_is_refused_if_it_is_none_or_too_much():
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"properties": {"a": nested}}
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_000)}
    for schema, reason in (
        (None, "its schema is not an object"),
        ([], "its schema is not an object"),
        ({"type": "string"}, "its schema is not one of an object"),
        ({"type": ["object", "null"]}, "its schema is not one of an object"),
        (nested, "its schema is nested more than 50 deep"),
        ({"enum": ["x" * 60_000]}, "its schema has 60,0"),
        ({"$defs": doubling, "$ref": "#/$defs/d0"}, "its schema multiplies itself by references"),
        ({"$ref": "#/$defs/d0", "$defs": chain}, "its schema refers to itself in too long a chain"),
        ({"properties": []}, "its schema is not valid"),
        ({"required": "a"}, "its schema is not valid"),
        ({"properties": {"a": {"pattern": "("}}}, "its schema is not valid"),
        ({"default": 10**5_000}, "its schema is not JSON"),
        ({"default": {1}}, "its schema is not JSON"),
    ):
        with pytest.raises(Refused) as refusal:
            sound_schema(schema)
        assert str(refusal.value).startswith(reason), schema if len(str(schema)) < 200 else reason


def test_a_schema_is_mended_where_it_can_be():
    tree = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"root": {"$ref": "#/$defs/Node"}, "$ref": {"type": "string"}, "pattern": {"type": "string"}},
        "$defs": {"Node": {"type": "object", "properties": {"inner": {"items": {"$ref": "#/$defs/Node"}}}}},
    }
    schema, notes = sound_schema(tree)
    assert notes == ["its schema refers to itself; below the first level nothing is checked"]
    assert "$schema" not in schema and set(schema["properties"]) == {"root", "$ref", "pattern"}
    spec = ToolSpec(name="t", description="", parameters=schema)
    check_arguments(spec, {"root": {"inner": [{"inner": [1]}]}, "$ref": "x", "pattern": "("})
    with pytest.raises(ToolError, match="root: 5 is not of type 'object'"):
        check_arguments(spec, {"root": 5})

    schema, notes = sound_schema({"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}, "b": {"$ref": "#/no/where"}}})
    assert notes == ["its schema refers to what is not in it; nothing is checked there"]
    assert schema["properties"] == {"a": {}, "b": {}}
    assert sound_schema({"$ref": "#"})[0] == {"type": "object"}
    assert sound_schema({"allOf": [{"$ref": "#"}]})[0] == {"type": "object", "allOf": [{}]}
    assert sound_schema({})[0] == {"type": "object"}
    described = {"properties": {"a": {"description": "\x00safe\u202e", "title": 3, "type": "string"}}}
    assert sound_schema(described)[0]["properties"]["a"] == {"description": "safe", "type": "string"}


def test_no_schema_and_no_arguments_make_the_check_take_for_ever():
    schema, notes = sound_schema(
        {
            "properties": {
                "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
                "evil": {"type": "string", "pattern": "^(a+)+$"},
                "worse": {"type": "string", "pattern": "a*a*a*a*a*a*b"},
            },
            "patternProperties": {"^(x|x)*$": {"type": "integer"}},
            "anyOf": [{"$ref": "#"}, {"$ref": "#"}],
            "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        }
    )
    assert notes == [
        "a pattern that could take for ever to match is not checked",
        "its schema refers to itself; below the first level nothing is checked",
    ]
    assert [("pattern" in row) for row in schema["properties"].values()] == [True, False, False]
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    began = time.perf_counter()
    check_arguments(ToolSpec(name="t", description="", parameters=schema), {"evil": "a" * 5_000 + "!", "x": deep})
    assert time.perf_counter() - began < 2
