"""Requests to the embedded model."""

from __future__ import annotations

from agentlab.core.messages import Message, ToolCall, ToolSpec

MODEL = "qwen2.5-coder-0.5b"
LOOKUP = ToolSpec(
    name="lookup_documents",
    description="Search the document collection and return the passages that fit the query.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what to search for"}},
        "required": ["query"],
    },
)
WEATHER = ToolSpec(
    name="weather.now",
    description="The current weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
    },
)


def user(text: str, name: str | None = None) -> Message:
    return Message(role="user", text=text, name=name)


def called(*calls: ToolCall, text: str = "") -> Message:
    return Message(role="agent", text=text, tool_calls=calls)


def result(call_id: str, text: str) -> Message:
    return Message(role="tool", text=text, tool_call_id=call_id, name="lookup_documents")
