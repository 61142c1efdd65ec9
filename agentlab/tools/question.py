"""`question`: put a question to the language model itself, which answers from what it knows."""

from __future__ import annotations

from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import Message, ToolSpec
from agentlab.session.session import Session

SPEC = ToolSpec(
    name="question",
    description="Ask a language model a question of general knowledge, language or arithmetic.",
    parameters={
        "type": "object",
        "properties": {"question": {"type": "string", "description": "The question, standing on its own"}},
        "required": ["question"],
        "additionalProperties": False,
    },
)
PROMPT = "Answer the question in one or two short sentences. Say so if you do not know."


class Question:
    spec = SPEC
    instruction = 'As "question", write the question out in full.'

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """The model's answer; raises ToolError for an empty question."""
        asked = str(arguments["question"]).strip()
        if not asked:
            raise ToolError("question: question: is empty; say what to ask")
        messages = (Message(role="system", text=PROMPT), Message(role="user", text=asked))
        answer = (await session.complete(messages, phase="tool")).message.text
        session.notify("subsystemMessage", answer[:500], title="LLM response: question")
        return answer


def build() -> Question:
    return Question()
