"""A conversation in the internal format, kept below a bound of tokens: user, the agent under its own name, and tools.

    history = ChatHistory(agent="miyori")
    history.add_message("user", "What is the weather in Bern?")
    history.add_message("miyori", "", tool_calls=(ToolCall(id="c1", name="weather", arguments={"city": "Bern"}),))
    history.add_message("tool", "Rain.", name="weather", tool_call_id="c1")
    history.trim_to_limit(max_tokens=8000, chunk_size=1000)

It is valid at every moment in the sense that providers check: a result follows the call it answers, and each call has
one result once `close_open_calls` was called. What a provider calls the agent is the business of its adapter.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from agentlab.core.messages import CHARACTERS_PER_TOKEN, Message, ToolCall


def estimate_tokens(message: Message) -> int:
    """Characters divided by four, rounded down; names and arguments of tool calls count, malformed ones as written."""
    calls = (
        len(call.name)
        + len(json.dumps(call.arguments, ensure_ascii=False) if call.malformed is None else call.malformed)
        for call in message.tool_calls
    )
    return (len(message.text) + sum(calls)) // CHARACTERS_PER_TOKEN


def own_name(agent: str) -> str:
    """`agent`, if it can name the agent; raises ValueError for a role of others and for a provider's word for it."""
    if not agent.strip() or agent.strip().lower() in ("user", "tool", "system", "assistant", "model", "ai", "bot"):
        raise ValueError(f"{agent!r} is a role of others; the agent needs a name of its own")
    return agent


class ChatHistory:
    """Messages, oldest first; `agent` is the name under which the model's own messages appear."""

    def __init__(self, agent: str = "miyori") -> None:
        self.agent = own_name(agent)
        self._messages: list[Message] = []

    def add_message(self, role: str, content: str, **about: Any) -> None:
        """Append a message of `user`, of the agent (by its name) or of a `tool`; ValueError for one that does not fit.

        `about` it: the other fields of a `Message`. The result of a tool answers an open call of the last message of
        the agent; nobody else speaks before that.
        """
        if role == "user":
            message = Message(role="user", text=content, **about)
        elif role == "tool":
            message = Message(role="tool", text=content, **about)
        elif role == self.agent:
            message = Message(role="agent", text=content, name=role, **about)
        else:
            raise ValueError(f"role {role!r}: the roles are user, {self.agent} and tool")
        waiting = {call.id for call in self.open_calls()}
        if role == "tool" and message.tool_call_id not in waiting:
            raise ValueError(f"{message.tool_call_id!r} is no open tool call; open are: {sorted(waiting)}")
        if role != "tool" and waiting:
            raise ValueError(f"the tool calls {sorted(waiting)} have no result yet")
        if len({call.id for call in message.tool_calls}) < len(message.tool_calls):
            raise ValueError("two tool calls of one message have the same id")
        self._messages.append(message)

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the agent's last message that have no result yet."""
        with_result: set[str | None] = set()
        for message in reversed(self._messages):
            if message.role != "tool":
                return tuple(call for call in message.tool_calls if call.id not in with_result)
            with_result.add(message.tool_call_id)
        return ()

    def close_open_calls(self, result: str) -> None:
        """Give every open call `result`, so that the next turn finds a history it can use."""
        for call in self.open_calls():
            self.add_message("tool", result, name=call.name, tool_call_id=call.id)

    def get_history(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    def last_reply(self) -> str:
        """The last words of the agent since the user spoke; "" where it has said nothing."""
        for message in reversed(self._messages):
            if message.role == "user":
                break
            if message.role == "agent" and message.text:
                return message.text
        return ""

    def get_token_count(self) -> int:
        """The estimate over all messages."""
        return sum(map(estimate_tokens, self._messages))

    def trim_to_limit(self, max_tokens: int, chunk_size: int) -> int:
        """Above `max_tokens`, drop the oldest exchanges, `chunk_size` tokens or more of them at a time, until less than
        `max_tokens - chunk_size` are left; returns how many messages went.

        An exchange is what a user said and all that followed: what is left begins with a user, and no result is parted
        from its call. The newest exchange stays however long it is. `chunk_size` 0 drops only what has to go.
        """
        left = self.get_token_count()
        if left <= max_tokens:
            return 0
        enough = max_tokens if chunk_size == 0 else max_tokens - chunk_size - 1
        starts = [at for at, message in enumerate(self._messages) if message.role == "user"]
        chunk = cut = 0
        for begin, end in itertools.pairwise([0, *starts]):
            if chunk >= chunk_size:
                if left <= enough:
                    break
                chunk = 0
            size = sum(map(estimate_tokens, self._messages[begin:end]))
            left, chunk, cut = left - size, chunk + size, end
        del self._messages[:cut]
        return cut

    def restore(self, messages: Iterable[Message]) -> None:
        """Become what another conversation's history was."""
        self._messages = list(messages)

    def clear(self) -> None:
        self._messages.clear()
