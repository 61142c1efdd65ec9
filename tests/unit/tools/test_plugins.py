"""Sources of tools: a decorated function, or any object with `spec` and `run`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.tools import FunctionTool, tool
from support.tool_sessions import call, session_with

THEIRS = """
from agentlab.core.messages import ToolSpec

class Oracle:
    spec = ToolSpec(name="oracle", description="", parameters={"type": "object"})

    def run(self, arguments, context):
        return f"it is {context.now:%H:%M}"

oracle = Oracle()
nothing = 3
"""


@tool(
    description="Tell the weather.",
    parameters={"city": {"type": "string"}, "day": {"type": "string"}},
    instruction="Name the city and the day.",
)
async def get_weather(arguments, context):
    return f"It rains in {arguments['city']}."


async def test_a_function_becomes_a_tool_with_a_closed_schema():
    assert isinstance(get_weather, FunctionTool) and get_weather.instruction == "Name the city and the day."
    assert get_weather.spec.name == "get_weather"
    assert list(get_weather.spec.parameters.items()) == [
        ("type", "object"),
        ("properties", {"city": {"type": "string"}, "day": {"type": "string"}}),
        ("required", ["city", "day"]),
        ("additionalProperties", False),
    ]
    session = session_with(get_weather)
    assert await call(session, "get_weather", city="Oslo", day="Friday") == "It rains in Oslo."
    assert (await call(session, "get_weather", city="Oslo")).endswith("'day' is a required property")


def test_tools_are_listed_with_what_they_do_and_nothing_is_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "agentlab.tools.clock", raising=False)
    lines = plugins.names("tools")
    assert lines["get_current_time"] == "Return the current date and time of the session's clock."
    assert list(lines) == sorted(lines) and "agentlab.tools.clock" not in sys.modules


async def test_an_object_of_another_package_is_a_tool(tmp_path: Path, monkeypatch):
    (tmp_path / "their_tools.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    oracle = plugins.resolve("tools", "their_tools:oracle")
    assert await call(session_with(oracle), "oracle") == "it is 09:20"
    with pytest.raises(ConfigError, match="cannot use the tool 'their_tools:nothing': it has no `spec`"):
        plugins.resolve("tools", "their_tools:nothing")
    with pytest.raises(ConfigError, match=r"unknown tool 'read_fil'\. Did you mean 'read_file'\?"):
        plugins.resolve("tools", "read_fil")
