"""Untrusted schemas: costly patterns, references and sizes take no time."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.lab.run import open_run
from agentlab.tools.mcp.listing import usable_tools

LONG = "a" * 40 + "!"
RUNAWAY = r"^(a+)+$"
FORK: dict[str, Any] = {
    f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)
}


def check(schema: dict[str, Any], **arguments: Any) -> None:
    check_arguments(ToolSpec(name="t", description="", parameters={"type": "object", **schema}), arguments)


def bounded(schema: dict[str, Any], **arguments: Any) -> float:
    """Return the processor seconds of a check, which may reject the arguments."""
    started = time.process_time()
    with contextlib.suppress(ToolError):
        check(schema, **arguments)
    return time.process_time() - started


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"pattern": RUNAWAY}}},
        {"patternProperties": {RUNAWAY: False}},
        {"patternProperties": {RUNAWAY: {}}, "additionalProperties": False},
        {"patternProperties": {RUNAWAY: {}}, "unevaluatedProperties": False},
        {"properties": {"x": {"pattern": "(a{1000}){1000}"}}},
        {"properties": {"x": {"pattern": "(" * 5000}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$defs": {**FORK, "d40": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/d0"}}},
        {"$ref": "https://example.com/schema.json"},
        {"pattern": 3, "properties": {"x": {"type": "dict", "pattern": None}}},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_schema_check_of_long_input_is_fast(schema):
    assert bounded(schema, x=LONG, **{LONG: 1}) < 2


def test_check_of_many_wrong_items_is_fast():
    assert bounded({"properties": {"x": {"items": {"type": "string"}}}}, x=[1] * 100_000) < 5


def test_unchecked_schema_parts_are_left_to_the_tool():
    check({"properties": {"x": {"pattern": "^a"}}}, x="b")
    closed = {"patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False}
    check(closed, x_one=1)
    check({"properties": {"x": {"type": "string"}}}, x="a", y=1)
    with pytest.raises(ToolError, match="Additional properties are not allowed"):
        check({"properties": {}, "additionalProperties": False}, y=1)
    with pytest.raises(ToolError, match="t: x: 'abc' is too long"):
        check({"properties": {"x": {"type": "string", "maxLength": 2}}}, x="abc")
    with pytest.raises(ToolError, match="t: x: 'a' is not of type 'integer'"):
        check({"properties": {"x": {"type": "int"}}}, x="a")
    tree = {"$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}, "n": {"type": "integer"}}}}}
    with pytest.raises(ToolError, match=r"root\.next\.next\.n: 'a' is not of type"):
        check({**tree, "properties": {"root": {"$ref": "#/$defs/t"}}}, root={"next": {"next": {"n": "a"}}})


def test_a_listing_with_such_schemas_is_read_at_once():
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"properties": {"x": deep}}
    rows = [
        {"name": f"t{number}", "inputSchema": {"type": "object", **schema}}
        for number, schema in enumerate([{"pattern": RUNAWAY}, {"pattern": "a{99999999999}"}, {"$ref": "#"}, deep])
    ]
    started = time.process_time()
    specs, problems = usable_tools("server", rows)
    assert time.process_time() - started < 2
    assert [spec.name for spec in specs] == ["t0", "t1", "t2"]
    assert len(problems) == 1 and "nested too deep" in problems[0]


def test_a_run_on_a_data_set_with_a_runaway_pattern_ends(tmp_path: Path, own_home, capsys):
    tool = {"name": "find", "description": "", "parameters": {"properties": {"x": {"pattern": RUNAWAY}}}}
    row = {"id": "c0", "tools": [tool], "turns": [{"user": "hi", "expected_calls": [{"name": "find"}]}]}
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "conversations.jsonl").write_text(json.dumps(row) + "\n")
    script = {"loop": True, "replies": [{"tool_calls": [{"name": "find", "arguments": {"x": LONG}}]}, "done"]}
    (tmp_path / "replies.yaml").write_text(json.dumps(script))
    spec = {"datasets": [str(tmp_path / "set")], "flows": ["tools"], "model": f"scripted/{tmp_path / 'replies.yaml'}"}
    (tmp_path / "spec.yaml").write_text(json.dumps({**spec, "embedder": "hashing/hashing-64"}))
    assert main(["run", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "run")]) == 0
    events = [event for trace in open_run(tmp_path / "run").traces.values() for event in trace.events]
    assert any(event.output == '{"status": "success"}' for event in events if event.kind == "tool")


def _doubled(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(times):
        schema = {"not": {"anyOf": [schema, schema]}}
    return schema


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_doubled(40), 5),
        ({"type": "array", "items": {"anyOf": [{"type": "string"}] * 4000}}, [1] * 4000),
        ({"uniqueItems": True}, [{"a": [number]} for number in range(20_000)]),
    ],
    ids=["alternatives that multiply", "alternatives of many", "items each with each"],
)
def test_a_schema_that_multiplies_work_takes_no_time(schema, value):
    before = time.thread_time()
    check_arguments(ToolSpec(name="t", description="", parameters={"properties": {"x": schema}}), {"x": value})
    assert time.thread_time() - before < 10
