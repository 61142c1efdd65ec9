"""Tools that ask the language model itself, with or without a web search."""

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
    """Ask the model a question that it answers without sources; raise ToolError for an empty question."""
    text = str(arguments["question"]).strip()
    if not text:
        raise ToolError("question: question: is empty; say what to ask")
    messages = (
        Message(role="system", text=context.prompt_or_default("question", PROMPT)),
        Message(role="user", text=text),
    )
    completion = (await context.complete(messages, phase="tool")).message.text
    context.notify("subsystemMessage", completion[:500], title="LLM response: question")
    return completion


@tool(
    description="Ask a language model with access to the internet, for news, prices, weather and other current data.",
    parameters={"query": {"type": "string", "description": "What to find out", "maxLength": 400}},
    instruction='As "query", write what one would type into a search engine.',
)
async def llmquery(arguments: dict[str, Any], context: ToolContext) -> str:
    """Search the web for a query and let the model sum up the pages; raise ToolError if the web is unavailable."""
    summary = await answer_from_web(arguments["query"], context, context.prompt_or_default("llmquery", WEB_PROMPT))
    if summary == UNAVAILABLE:
        raise ToolError(summary)
    context.notify("subsystemMessage", summary[:500], title="LLM response: llmquery")
    return summary
