"""Schemas made simple enough for constrained replies."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.schemas import simplify_schema


class TestSchemas:
    @pytest.mark.parametrize(
        ("odd", "simple"),
        [
            ({"type": "dict"}, {"type": "object", "properties": {}, "required": [], "additionalProperties": True}),
            ({"type": "float"}, {"type": "number"}),
            ({"type": "tuple", "items": {"type": "int"}}, {"type": "array", "items": {"type": "integer"}}),
            ({"type": "array", "items": [{"type": "str"}, {"type": "bool"}]}, "tuple"),
            ({"type": "any"}, {}),
            ({"type": "String", "format": "email", "pattern": "^(?=x)"}, {"type": "string"}),
            ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ({"type": "integer", "nullable": True}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            ({"type": "integer", "minimum": 1.5, "maximum": 5}, {"type": "integer", "minimum": 2, "maximum": 5}),
            ({"type": "number", "minimum": 9, "maximum": 1}, {"type": "number"}),
            ({"enum": []}, {}),
            ({"enum": ["a", float("nan")]}, {"enum": ["a"]}),
            ({"const": 3, "type": "odd"}, {"const": 3}),
            ({"oneOf": [{"type": "string"}, {"type": "string"}]}, {"type": "string"}),
            ({"not": {}, "uniqueItems": True}, {}),
            (True, {}),
            (None, {}),
        ],
    )
    def test_odd_schemas_become_plain(self, odd: Any, simple: Any) -> None:
        if simple == "tuple":
            simple = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}
        assert simplify_schema(odd) == simple

    def test_objects_are_closed_and_ask_only_for_what_they_have(self) -> None:
        odd = {"properties": {"a": {"type": "string"}}, "required": ["a", "gone"], "$defs": {}}
        assert simplify_schema(odd) == {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        }
        for broken in ({"type": "object", "properties": None}, {"type": "object", "properties": [], "required": "a"}):
            assert simplify_schema(broken)["additionalProperties"] is True
        assert simplify_schema({"type": "object", "additionalProperties": {"type": "float"}})[
            "additionalProperties"
        ] == {"type": "number"}

    def test_references_are_written_out(self) -> None:
        tree = {
            "type": "object",
            "properties": {"name": {"$ref": "#/$defs/a~1b"}, "child": {"$ref": "#"}, "lost": {"$ref": "#/nowhere/x"}},
            "$defs": {"a/b": {"type": "str"}},
        }
        simple = simplify_schema(tree)
        assert simple["properties"]["name"] == {"type": "string"}
        assert simple["properties"]["child"]["properties"]["name"] == {"type": "string"}
        assert simple["properties"]["lost"] == {}
        merged = simplify_schema(
            {"allOf": [{"$ref": "#/d"}, {"properties": {"b": {}}}], "d": {"properties": {"a": {}}}}
        )
        assert set(merged["properties"]) == {"a", "b"}

    def test_references_that_multiply_are_bounded(self) -> None:
        levels = {f"l{n}": {"properties": {f"p{i}": {"$ref": f"#/l{n + 1}"} for i in range(10)}} for n in range(10)}
        started = time.perf_counter()
        simplify_schema({"$ref": "#/l0", **levels})
        assert time.perf_counter() - started < 1

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "x"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_anything_at_all_gives_a_schema(self, anything: Any) -> None:
        json.dumps(simplify_schema(anything), allow_nan=False)
