"""Tools accepted from the list of an MCP server, their names and their number."""

from __future__ import annotations

from typing import Any

import pytest

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.schemas import check_arguments
from agentlab.tools.mcp.listing import MAX_TOOLS, FoundTool, usable_tools, with_unique_names
from support.mcp_server import LIARS


def test_unusable_tools_are_left_out():
    specs, problems = usable_tools("s", [row for row in LIARS.values() if isinstance(row, dict)])
    assert [spec.name for spec in specs] == ["good", "invalid", "numbered", "long"]
    assert [spec.description[:5] for spec in specs] == ["Fine.", "", "7", "[31mw"]
    assert len(specs[3].description) == len("[31m") + 5_000
    assert problems == (
        "s: bare: is left out: its schema is not an object",
        "s: text: is left out: its schema is not an object",
        "s: listed: is left out: its schema does not describe an object",
        "s: good: duplicate name; the first tool is used",
        "s: tool 8 is left out: it has no usable name",
    )
    rows = [{"name": s.name, "description": s.description, "inputSchema": s.parameters} for s in specs]
    assert usable_tools("s", rows) == (specs, ()), "what was accepted once is as it stands"
    assert usable_tools("s", [None]) == ((), ("s: tool 1 is left out: it has no usable name",))


def deep() -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(5_000):
        nested = {"properties": {"a": nested}}
    return nested


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "its schema is not an object"),
        ([], "its schema is not an object"),
        ({"type": "string"}, "its schema does not describe an object"),
        ({"type": ["array", "null"]}, "its schema does not describe an object"),
        (deep(), "its schema is nested too deep"),
        ({"default": 10**5_000}, "its schema is not JSON"),
        ({"default": {1}}, "its schema is not JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_is_refused_if_it_is_none_or_too_much(schema, reason):
    assert usable_tools("s", [{"name": "t", "inputSchema": schema}]) == ((), (f"s: t: is left out: {reason}",))


def test_a_schema_may_be_in_another_dialect_refer_to_itself_and_lack_a_type():
    tree = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {"inner": {"items": {"$ref": "#/$defs/Node"}}}}},
    }
    (spec,), problems = usable_tools("s", [{"name": "t", "inputSchema": tree}])
    assert problems == () and "$schema" not in spec.parameters and spec.parameters["type"] == "object"
    check_arguments(spec, {"root": {"inner": [{"inner": [{}]}]}})
    with pytest.raises(ToolError, match="root: 5 is not of type 'object'"):
        check_arguments(spec, {"root": 5})


async def nothing(arguments: dict[str, Any], context: Any) -> str:
    return ""


def found_tool(source: str, name: str, description: str = "") -> FoundTool:
    return FoundTool(ToolSpec(name=name, description=description, parameters={}), nothing, source=source)


def test_a_name_that_is_taken_gets_its_source_in_front():
    scripts = [found_tool("built", "good"), found_tool("own", "ask")]
    of_servers = [
        found_tool("near", "good"),
        found_tool("a", "both"),
        found_tool("b", "both"),
        found_tool("b", "alone"),
    ]
    tools, problems = with_unique_names(scripts, of_servers, ["ask"])
    assert [tool.spec.name for tool in tools] == ["good", "own_ask", "near_good", "a_both", "b_both", "alone"]
    assert problems == [
        "own: ask: the agent has a tool of this name; it is called own_ask here",
        "near: good: built has a tool of this name; it is called near_good here",
        "a: both: another server has a tool of this name; it is called a_both here",
        "b: both: another server has a tool of this name; it is called b_both here",
    ]


def test_first_tools_count_and_scripts_precede_servers():
    scripts = [found_tool("own", f"script_{number}") for number in range(8)]
    of_servers = [found_tool("far", f"tool_{number}") for number in range(MAX_TOOLS)]
    assert with_unique_names([], of_servers, []) == (tuple(of_servers), [])
    tools, problems = with_unique_names(scripts, of_servers, [])
    assert tools == (*scripts, *of_servers[:120])
    assert problems == ["only the first 128 tools are used; remove unneeded servers or scripts"]
