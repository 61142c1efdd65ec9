"""Built-in tools, one file per subject. A tool is a function with the decorator `@tool`; its name is the tool's name.

    @tool(
        description="Tell the weather.",
        parameters={"city": {"type": "string", "description": "Where"}},
        instruction='As "city", write the name of the city alone.',
    )
    async def get_weather(arguments, context) -> str:
        return f"It rains in {arguments['city']}."

A tool receives a `ToolContext`, the part of a session that it may use. `manual` renders tools for a prompt.

`documents`, `memory`, `files`, `web`, `ask`, `clock`: the tools. `pages`: fetching of web pages, with its limits;
`web` cuts each page again for its prompt.
`stub`: tools from the data set. `mcp/`: MCP servers and scripts of a data folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import ToolContext
from agentlab.core.schemas import strict_object_schema

Work = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


@dataclass(frozen=True)
class FunctionTool:
    """Function that a model can call. It raises ToolError with a sentence that helps the model."""

    spec: ToolSpec
    run: Work
    instruction: str = ""
    """Instruction for writing the arguments, for a model call that returns only arguments."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of required arguments that the model may still omit."""


def tool(
    *,
    description: str,
    parameters: Mapping[str, Any],
    instruction: str = "",
    name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Work], FunctionTool]:
    """Make a tool of a function. `parameters` maps each argument, all of them required, to its JSON schema.

    A call without an argument gets its value from `defaults`. The tool's name is `name` or the function's name.
    """
    schema = strict_object_schema(dict(parameters))

    def decorate(work: Work) -> FunctionTool:
        spec = ToolSpec(name=name or work.__name__, description=description, parameters=schema)
        return FunctionTool(spec, work, instruction, defaults or {})

    return decorate
