"""`reflection`: the layered agent looks back at the last exchange; what it learns goes into its long-term memory."""

from __future__ import annotations

from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.session.session import Session

SPEC = ToolSpec(
    name="reflection",
    description="Look back at what was just said and done, and keep what can be learned from it.",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


class Reflection:
    spec = SPEC

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """The lessons; raises ToolError in a flow that has no such memory."""
        ego = session.state.get("ego")
        if ego is None:
            raise ToolError("reflection: only the flow `ego` has the memory for it")
        lessons = await ego.reflect(session)
        return "\n".join(lessons) or "Nothing to learn from this."


def build() -> Reflection:
    return Reflection()
