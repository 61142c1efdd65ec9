"""Tool that returns the current date and time."""

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
    """Return the current date and time of the session's clock.

    The text has the form `Thursday, 5 March 2026, 09:20`. A UTC offset follows if the clock has a time zone.
    """
    now = context.now
    zone = f" (UTC{now:%z})" if now.tzinfo is not None else ""
    return f"{now:%A}, {now.day} {now:%B %Y, %H:%M}{zone}"
