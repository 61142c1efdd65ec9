"""`get_current_time`: the model asks what day and time it is, by the clock of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentlab.core.messages import ToolSpec

if TYPE_CHECKING:
    from agentlab.session.session import Session

SPEC = ToolSpec(
    name="get_current_time",
    description="Tell the current date, weekday and time.",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


class GetCurrentTime:
    spec = SPEC
    instruction = "This tool takes no arguments: write {}."

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """Such as `Thursday, 5 March 2026, 09:20`, with the distance to UTC where the session knows it."""
        now = session.now
        zone = f" (UTC{now:%z})" if now.tzinfo is not None else ""
        return f"{now:%A}, {now.day} {now:%B %Y, %H:%M}{zone}"


def build() -> GetCurrentTime:
    return GetCurrentTime()
