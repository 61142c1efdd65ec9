"""What in a data set can be read but hardly be meant: gold that contradicts itself, or that no reply could meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentlab.core.names import MEMORY_TOOLS
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset

ORDERS = ("any", "sequence")
OWN = ("lookup_documents", *MEMORY_TOOLS)
"""Tools that a flow has beside those a conversation brings."""


def lint(dataset: Dataset) -> Iterator[str]:
    """One line for each, with conversation, turn and key."""
    for conversation in dataset.conversations:
        for number in conversation.scored_turns:
            for doubt in _of_turn(conversation, conversation.turns[number]):
                yield f"turn {number} of {conversation.id}: {doubt}"


def _of_turn(conversation: Conversation, turn: Turn) -> Iterator[str]:
    expected = turn.expected_calls or []
    if turn.no_call and expected:
        yield "no_call: calls are expected all the same"
    if turn.call_order not in ORDERS:
        yield f"call_order: {turn.call_order!r} is not graded; 'sequence' is"
    for memory in turn.expected_memory or []:
        if memory.op != "none" and not memory.content:
            yield f"expected_memory: {memory.op} without a content"
    offered = {tool.name: tool.parameters for tool in conversation.tools}
    for call in expected:
        if offered and call.name not in offered and call.name not in OWN:
            yield f"expected_calls: {call.name} is no tool of the conversation"
        known = offered.get(call.name, {}).get("properties")
        if isinstance(known, Mapping):
            for name in sorted({*call.accepted_arguments, *call.optional_arguments} - {*known}):
                yield f"expected_calls: {call.name} has no argument {name}"
