"""The built-in tools, one file a subject, each a function with the decorator `@tool`; flows name them by that function.

    @tool(
        description="Tell the weather.",
        parameters={"city": {"type": "string", "description": "Where"}},
        instruction='As "city", write the name of the city alone.',
    )
    async def get_weather(arguments, context) -> str:
        return f"It rains in {arguments['city']}."

A tool is handed a `ToolContext`, the part of a session it may use. What a prompt is told of tools is in `manual`.
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
    """A function that a model can call; it raises ToolError with a sentence the model can act on."""

    spec: ToolSpec
    run: Work
    instruction: str = ""
    """How to write the arguments, for a model that is asked for them alone."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What an argument is that the model left out, though it was asked for."""


def tool(
    *,
    description: str,
    parameters: Mapping[str, Any],
    instruction: str = "",
    name: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Work], FunctionTool]:
    """Make a tool of a function; `parameters` is the JSON schema of each argument, all of which are required.

    A call that leaves one of `defaults` out is carried out with that.

    The model knows the tool by the function's name, or by `name`.
    """
    schema = strict_object_schema(dict(parameters))

    def made_of(work: Work) -> FunctionTool:
        spec = ToolSpec(name=name or work.__name__, description=description, parameters=schema)
        return FunctionTool(spec, work, instruction, defaults or {})

    return made_of
