"""`llmquery`: a question answered from the web by the language model, for what is happening now."""

from __future__ import annotations

from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec
from agentlab.session.session import Session
from agentlab.tools import search_web

SPEC = ToolSpec(
    name="llmquery",
    description="Ask a language model with access to the internet, for news, prices, weather and other current data.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to find out", "maxLength": 400}},
        "required": ["query"],
        "additionalProperties": False,
    },
)


class LLMQuery:
    spec = SPEC
    instruction = 'As "query", write what one would type into a search engine.'

    def __init__(self) -> None:
        self._search = search_web.build()

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """What the model makes of the pages found; raises ToolError where the web cannot be searched."""
        answer = await self._search.run(arguments, session)
        if answer == search_web.UNAVAILABLE:
            raise ToolError(answer)
        session.notify("subsystemMessage", answer[:500], title="LLM response: llmquery")
        return answer


def build() -> LLMQuery:
    return LLMQuery()
