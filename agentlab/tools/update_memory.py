"""`update_memory`: the model replaces a fact in long-term memory; the new version has a new id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentlab.core.messages import ToolSpec
from agentlab.tools.recollection import one_line, with_memory

if TYPE_CHECKING:
    from agentlab.session.session import Session

FAILED = "Memory replacement failed."
"""How the answer to an id that does not exist begins."""
_LONGEST_ID = 100
SPEC = ToolSpec(
    name="update_memory",
    description=(
        "Replace a fact in long-term memory, named by its id, with a new version. The old one is deleted, the new one"
        " has a new id."
    ),
    parameters={
        "type": "object",
        "properties": {
            "memory_id": {"type": "string", "description": "The id of the stored fact, exactly as it was listed"},
            "new_content": {"type": "string", "description": "The whole new version of the fact"},
        },
        "required": ["memory_id", "new_content"],
        "additionalProperties": False,
    },
)


class UpdateMemory:
    spec = SPEC
    instruction = (
        'As "memory_id", give the id of the stored fact exactly as it was listed, and as "new_content" the whole new'
        " version."
    )

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """The new id, or that there is no such fact; raises ToolError for an empty text."""
        memory_id = arguments["memory_id"]

        async def replace() -> str:
            fact = await session.revise(memory_id, arguments["new_content"])
            if fact is not None:
                return f"Memory replaced successfully. New ID: {one_line(fact.id)}"
            shown = one_line(memory_id)[:_LONGEST_ID]
            return f"{FAILED} The provided memory_id '{shown}' was not found. Use an ID exactly as it was listed."

        return await with_memory(session, "nothing was changed", replace)


def build() -> UpdateMemory:
    return UpdateMemory()
