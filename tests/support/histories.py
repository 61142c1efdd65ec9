"""Histories of any length with calls and results, as Hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from agentlab.core.messages import ToolCall
from agentlab.flows.coordinator.chat_history import ChatHistory

words = st.text("abc ", max_size=80)


def call(call_id: str, **arguments: object) -> ToolCall:
    return ToolCall(id=call_id, name="search", arguments=arguments)


@st.composite
def histories(draw: st.DrawFn) -> ChatHistory:
    history = ChatHistory()
    number = 0
    for _ in range(draw(st.integers(0, 12))):
        history.add_message("user", draw(words))
        for _ in range(draw(st.integers(0, 2))):
            calls = [call(f"c{number + i}", q=draw(words)) for i in range(draw(st.integers(1, 3)))]
            number += len(calls)
            history.add_message("miyori", draw(words), tool_calls=tuple(calls))
            for one in draw(st.permutations(calls)):
                history.add_message("tool", draw(words), name="search", tool_call_id=one.id)
        if draw(st.booleans()):
            history.add_message("miyori", draw(words))
    return history
