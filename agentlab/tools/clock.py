"""What day and time it is."""

from __future__ import annotations

from typing import Any

from agentlab.core.protocols import ToolContext
from agentlab.tools import tool


@tool(
    description="Tell the current date, weekday and time.",
    parameters={},
    instruction="This tool takes no arguments: write {}.",
)
async def get_current_time(arguments: dict[str, Any], context: ToolContext) -> str:
    """The model asks what day and time it is, by the clock of the session.

    Such as `Thursday, 5 March 2026, 09:20`, with the distance to UTC where the session knows it.
    """
    now = context.now
    zone = f" (UTC{now:%z})" if now.tzinfo is not None else ""
    return f"{now:%A}, {now.day} {now:%B %Y, %H:%M}{zone}"
