"""Questions to the language model itself, from what it knows or from what the web says."""

from __future__ import annotations

from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import Message
from agentlab.core.protocols import ToolContext
from agentlab.tools import tool
from agentlab.tools.web import PROMPT as WEB_PROMPT
from agentlab.tools.web import UNAVAILABLE, answer_from_web

PROMPT = "Answer the question in one or two short sentences. Say so if you do not know."


@tool(
    description="Ask a language model a question of general knowledge, language or arithmetic.",
    parameters={"question": {"type": "string", "description": "The question, standing on its own"}},
    instruction='As "question", write the question out in full.',
)
async def question(arguments: dict[str, Any], context: ToolContext) -> str:
    """The model is asked a question, and answers from what it knows; raises ToolError for an empty one."""
    asked = str(arguments["question"]).strip()
    if not asked:
        raise ToolError("question: question: is empty; say what to ask")
    messages = (
        Message(role="system", text=context.prompt_or_default("question", PROMPT)),
        Message(role="user", text=asked),
    )
    answer = (await context.complete(messages, phase="tool")).message.text
    context.notify("subsystemMessage", answer[:500], title="LLM response: question")
    return answer


@tool(
    description="Ask a language model with access to the internet, for news, prices, weather and other current data.",
    parameters={"query": {"type": "string", "description": "What to find out", "maxLength": 400}},
    instruction='As "query", write what one would type into a search engine.',
)
async def llmquery(arguments: dict[str, Any], context: ToolContext) -> str:
    """The model is asked what is happening now, and answers from the web; raises ToolError where that is away."""
    answer = await answer_from_web(arguments["query"], context, context.prompt_or_default("llmquery", WEB_PROMPT))
    if answer == UNAVAILABLE:
        raise ToolError(answer)
    context.notify("subsystemMessage", answer[:500], title="LLM response: llmquery")
    return answer
