"""Requests to the Gemini adapter over the local server, and the bodies that the server received.

The real one is asked by `evals/live_gemini.py`, which `make test` runs where a key is in the environment.
"""

from __future__ import annotations

from typing import Any

from agentlab.core.messages import Completion, Message, Request, ToolCall, ToolSpec
from agentlab.models.gemini import GeminiModel
from agentlab.models.keys import KeyRing
from support.fake_gemini import FakeGemini, serving, text

KEY = "TheSecretKeyNumberOne"
SEARCH = ToolSpec(name="docs.search", description="Search.", parameters={"type": "object", "properties": {}})
CLOCK = ToolSpec(name="2nd clock", description="Tell the time.", parameters={"type": "object", "properties": {}})
USER = Message(role="user", text="Hello")
HELLO = Request(messages=(USER,))


def model(fake: FakeGemini, *keys: str, **options: Any) -> GeminiModel:
    return GeminiModel("served", base_url=fake.base_url, keys=KeyRing(keys or [KEY]), **options)


async def ask(response, *messages: Message, **facts: Any) -> tuple[Completion, list[str], FakeGemini]:
    async with serving(lambda body: response) as fake:
        adapter = model(fake)
        pieces: list[str] = []
        try:
            return await adapter.complete(Request(messages=messages or (USER,), **facts), pieces.append), pieces, fake
        finally:
            await adapter.close()


async def sent(*messages: Message, **facts: Any) -> dict[str, Any]:
    """Return the body that the server received and accepted."""
    _, _, fake = await ask(text("ok"), *messages, **facts)
    return fake.seen[0]


def system(words: str) -> Message:
    return Message(role="system", text=words)


def agent(words: str = "", *calls: ToolCall, **more: Any) -> Message:
    return Message(role="agent", text=words, tool_calls=calls, **more)


def result(call_id: str, words: str, name: str | None = "docs.search") -> Message:
    return Message(role="tool", text=words, tool_call_id=call_id, name=name)


def search(call_id: str, **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name="docs.search", **more)
