"""`memoryMaintenance`: the layered agent tidies its long-term memory; what it prunes can be found again."""

from __future__ import annotations

from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.session.session import Session

SPEC = ToolSpec(
    name="memoryMaintenance",
    description="Consolidate long-term memory: merge what is said twice, prune what is out of date. When asked to.",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


class MemoryMaintenance:
    spec = SPEC

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """What was done; raises ToolError in a flow that has no such memory."""
        ego = session.state.get("ego")
        if ego is None:
            raise ToolError("memoryMaintenance: only the flow `ego` has the memory for it")
        return str(await ego.maintain(session))


def build() -> MemoryMaintenance:
    return MemoryMaintenance()
