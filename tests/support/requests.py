"""Requests of every shape, as Hypothesis makes them, and their keys."""

from __future__ import annotations

from hypothesis import strategies as st

from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.wire.keys import normalise_request

TEXT = st.text(max_size=8)
VALUES = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-(10**9), 10**9), st.booleans()), max_size=3)
CALLS = st.builds(ToolCall, id=TEXT, name=TEXT, arguments=VALUES)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "agent"]),
    text=TEXT,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
)
TOOLS = st.builds(ToolSpec, name=TEXT, description=TEXT, parameters=VALUES)
REQUESTS = st.builds(
    Request,
    messages=st.lists(MESSAGES, min_size=1, max_size=4).map(tuple),
    tools=st.lists(TOOLS, max_size=2, unique_by=lambda tool: tool.name).map(tuple),
    tool_choice=st.sampled_from(["auto", "none"]),
    output_schema=st.none() | VALUES,
    temperature=st.none() | st.floats(0, 2),
    seed=st.none() | st.integers(0, 9),
    max_tokens=st.none() | st.integers(1, 9),
)


def parts_of(recordings, row):
    """The messages and the tools of a recorded request."""
    location = recordings.line_of(row.key)
    return (
        tuple(recordings.part("message", name, location) for name in row.request["messages"]),
        tuple(recordings.part("tool", name, location) for name in row.request["tools"]),
    )


def request_of(recordings, row):
    """A recorded request made whole again of its parts."""
    messages, tools = parts_of(recordings, row)
    settings = {name: value for name, value in row.request.items() if name not in ("model", "endpoint", "epoch")}
    return Request(**{**settings, "messages": messages, "tools": tools})


def key(request, model="m", endpoint="", epoch=0, repeat=0):
    return normalise_request(model, endpoint, request, epoch).key(repeat)
