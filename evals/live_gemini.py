"""Asks the real Gemini, for a text and for a tool call and its result; `make test` does so where a key is set.

GEMINI_API_KEY=... python evals/live_gemini.py [MODEL]
"""

from __future__ import annotations

import asyncio
import sys

from agentlab.core.messages import Message, Request, ToolSpec
from agentlab.models.gemini import connect

WEATHER = ToolSpec(
    name="weather.now",
    description="Tells the weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


async def check(name: str) -> None:
    model = connect(name)
    try:
        pieces: list[str] = []
        hello = Message(role="user", text="Reply with the word ready.")
        completion = await model.complete(Request(messages=(hello,), temperature=0.0), pieces.append)
        assert "ready" in completion.message.text.lower() and "".join(pieces) == completion.message.text, completion
        assert completion.usage.input_tokens and completion.usage.output_tokens, completion.usage
        question = Message(role="user", text="What is the weather in Bern? Use the tool.")
        request = Request(messages=(question,), tools=(WEATHER,), tool_choice="required")
        called = (await model.complete(request, pieces.append)).message
        assert [call.name for call in called.tool_calls] == ["weather.now"], called
        result = Message(role="tool", text="Rain.", name="weather.now", tool_call_id=called.tool_calls[0].id)
        completion = await model.complete(Request(messages=(question, called, result), tools=(WEATHER,)), pieces.append)
        assert "rain" in completion.message.text.lower(), completion
    finally:
        await model.close()


if __name__ == "__main__":
    asyncio.run(check(sys.argv[1] if len(sys.argv) > 1 else "gemini-2.5-flash"))
    print("gemini answers as the tests expect")
