"""`save_memory`: the model writes a new fact to long-term memory, unless a fact there says nearly the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentlab.core.messages import ToolSpec
from agentlab.tools.recollection import entry, one_line, with_memory

if TYPE_CHECKING:
    from agentlab.session.session import Session

SPEC = ToolSpec(
    name="save_memory",
    description="Save a new fact to long-term memory for later conversations. What is known is not saved twice.",
    parameters={
        "type": "object",
        "properties": {"content": {"type": "string", "description": "The fact, as a sentence that stands on its own"}},
        "required": ["content"],
        "additionalProperties": False,
    },
)


class SaveMemory:
    spec = SPEC
    instruction = 'As "content", write what the user has just told, as one sentence that stands on its own.'

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """The id of the new fact, or the fact that is too near to it; raises ToolError for an empty text."""

        async def save() -> str:
            added = await session.remember(arguments["content"])
            assert added is not None, "a session with a memory says what became of the text"
            if added.is_new:
                return f"Saved to memory. ID: {one_line(added.fact.id)}"
            return f"Not saved: a very similar fact is already stored. {entry(added.fact)}"

        return await with_memory(session, "nothing was saved", save)


def build() -> SaveMemory:
    return SaveMemory()
