"""The list of tools: definitions and instructions, look-up by name, and the run of a tool."""

from __future__ import annotations

import re

import pytest

from agentlab.cli.parser import main
from agentlab.core import plugins
from agentlab.core.events import ToolRun
from agentlab.core.messages import ToolCall, ToolSpec
from agentlab.tools.files import write_file
from agentlab.tools.manual import find_tool, instruction_of, tool_list_for_prompt, tool_names
from support.tool_sessions import call, session_with

SEED_TOOLS = {
    "get_current_time": [],
    "read_file": ["file_path"],
    "write_file": ["file_path", "content"],
    "fetch_memory": ["query"],
    "update_memory": ["memory_id", "new_content"],
    "save_memory": ["content"],
    "search_web": ["query"],
}


@pytest.mark.parametrize("name", SEED_TOOLS)
def test_every_tool_of_the_seed_has_its_arguments_and_an_instruction(name):
    tool = plugins.resolve("tools", name)
    assert tool.spec.name == name
    assert list(tool.spec.parameters["properties"]) == tool.spec.parameters["required"] == SEED_TOOLS[name]
    assert instruction_of(tool) == tool.instruction != tool.spec.description
    assert re.findall(r'"(\w+)"', tool.instruction) == SEED_TOOLS[name]


def test_the_registry_lists_finds_and_names_tools():
    specs = [plugins.resolve("tools", name).spec for name in SEED_TOOLS]
    assert find_tool(specs, "search_web").name == "search_web"
    assert find_tool(specs, "search_we") is None
    assert tool_names(specs) == tuple(SEED_TOOLS)
    lines = tool_list_for_prompt(specs).split("\n")
    assert lines[0] == "- get_current_time(): Tell the current date, weekday and time."
    assert lines[2].startswith("- write_file(file_path, content): Write a text file")
    assert tool_list_for_prompt([]) == ""


def test_tools_that_a_data_set_brings_are_listed_whatever_their_schema():
    class DatasetTool:
        def __init__(self, parameters):
            self.spec = ToolSpec(name="book", description="Book\n a table.", parameters=parameters)

    size = {"type": "integer", "description": "guests"}
    properties = {"size": size, "note": {"type": "string"}, "odd": None, "any": {"type": ["a", "b"]}}
    tool = DatasetTool({"type": "dict", "properties": properties, "required": ["size"]})
    assert tool_list_for_prompt([tool.spec]) == "- book(size, note?, odd?, any?): Book a table."
    assert instruction_of(tool) == (
        "Write a JSON object with:\n- size (integer): guests\n- note (string)\n- odd (any)\n- any (any)"
    )
    assert instruction_of(DatasetTool({"properties": None})) == "This tool takes no arguments: write {}."


def test_the_command_line_lists_them(capsys):
    assert main(["list", "tools"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in SEED_TOOLS)
    assert "read_page" not in output


async def test_the_executor_runs_sync_and_async_tools_and_answers_with_text():
    class Plain:
        spec = ToolSpec(name="plain", description="", parameters={"type": "object"})

        def run(self, arguments, session):
            return arguments["value"]

    class Waiting(Plain):
        spec = ToolSpec(name="waiting", description="", parameters={"type": "object"})

        async def run(self, arguments, session):
            return arguments["value"]

    session = session_with(Plain(), Waiting())
    for name in ("plain", "waiting"):
        assert await call(session, name, value="text") == "text"
        assert await call(session, name, value=3) == "3"
        assert await call(session, name) == f"Error: the tool {name} failed: KeyError: 'value'"


async def test_unknown_tools_and_wrong_arguments_become_messages():
    session = session_with(write_file)
    assert await call(session, "sing") == "Error: there is no tool 'sing'; there are: write_file"
    result = await call(session, "write_file", file_path="a.txt")
    assert result == "Error: write_file: arguments: 'content' is a required property"
    assert (await call(session, "write_file", file_path=3, content="")).startswith("Error: write_file: file_path: 3 is")
    assert "unexpected" in await call(session, "write_file", file_path="a", content="", mode="0777")
    broken = ToolCall(id="c", name="write_file", malformed="{")
    result = (await session.call_tool(broken)).text
    assert result == "Error: the arguments of write_file are not a JSON object"
    assert all(event.error for event in session.trace.events if isinstance(event, ToolRun))


def test_no_instruction_holds_a_value_that_a_model_could_copy():
    """A small model saved an example from an instruction as a fact about the user."""
    for name in plugins.names("tools"):
        instruction = getattr(plugins.resolve("tools", name), "instruction", "")
        assert '{"' not in instruction, f"{name}: an argument with its value is an example"
