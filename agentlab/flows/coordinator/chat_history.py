"""History of user, agent and tool messages that can be trimmed to a limit of tokens. The agent has its own name.

    history = ChatHistory(agent="miyori")
    history.add_message("user", "What is the weather in Bern?")
    history.add_message("miyori", "", tool_calls=(ToolCall(id="c1", name="weather", arguments={"city": "Bern"}),))
    history.add_message("tool", "Rain.", name="weather", tool_call_id="c1")
    history.trim_to_limit(max_tokens=8000, chunk_size=1000)

The history is always valid for providers: a result follows its call, and after `close_open_calls` each call has one
result. The provider's adapter translates the agent's name into the provider's role.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from agentlab.core.messages import CHARACTERS_PER_TOKEN, Message, ToolCall


def estimate_tokens(message: Message) -> int:
    """Return the characters of a message divided by four, rounded down, with names and arguments of its tool calls."""
    calls = (
        len(call.name)
        + len(json.dumps(call.arguments, ensure_ascii=False) if call.malformed is None else call.malformed)
        for call in message.tool_calls
    )
    return (len(message.text) + sum(calls)) // CHARACTERS_PER_TOKEN


def own_name(agent: str) -> str:
    """Return `agent`; raise ValueError if it is empty, another role, or a provider's word for the agent."""
    if not agent.strip() or agent.strip().lower() in ("user", "tool", "system", "assistant", "model", "ai", "bot"):
        raise ValueError(f"{agent!r} is a reserved role; choose another name for the agent")
    return agent


class ChatHistory:
    """Messages, oldest first; `agent` is the name of the model's own messages."""

    def __init__(self, agent: str = "miyori") -> None:
        self.agent = own_name(agent)
        self._messages: list[Message] = []

    def add_message(self, role: str, content: str, **fields: Any) -> None:
        """Append a message of `user`, of the agent (by its name) or of `tool`; `fields` are further `Message` fields.

        A tool's result must belong to an open call of the agent's last message. No other message may come before it.
        Raises ValueError otherwise, and for an unknown role.
        """
        if role not in ("user", self.agent, "tool"):
            raise ValueError(f"role {role!r}: the roles are user, {self.agent} and tool")
        message = Message(role=role, text=content, **fields)  # type: ignore[arg-type]
        open_ids = {call.id for call in self.open_calls()}
        if role == "tool" and message.tool_call_id not in open_ids:
            raise ValueError(f"{message.tool_call_id!r} is no open tool call; open are: {sorted(open_ids)}")
        if role != "tool" and open_ids:
            raise ValueError(f"the tool calls {sorted(open_ids)} have no result yet")
        if len({call.id for call in message.tool_calls}) < len(message.tool_calls):
            raise ValueError("two tool calls of one message have the same id")
        self._messages.append(message)

    def open_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of the agent's last message that have no result yet."""
        with_result: set[str | None] = set()
        for message in reversed(self._messages):
            if message.role != "tool":
                return tuple(call for call in message.tool_calls if call.id not in with_result)
            with_result.add(message.tool_call_id)
        return ()

    def close_open_calls(self, result: str) -> None:
        """Add `result` for every open call, so that the next turn has a valid history."""
        for call in self.open_calls():
            self.add_message("tool", result, name=call.name, tool_call_id=call.id)

    def get_history(self) -> tuple[Message, ...]:
        """Return the messages, of which the agent's have its own name as their role."""
        return tuple(self._messages)

    def request_messages(self) -> tuple[Message, ...]:
        """Return the messages in the form of requests and files: the role `agent`, with the agent's name."""
        return tuple(
            replace(message, role="agent", name=self.agent) if message.role == self.agent else message
            for message in self._messages
        )

    def last_reply(self) -> str:
        """Return the last text of the agent since the last user message; "" if there is none."""
        for message in reversed(self._messages):
            if message.role == "user":
                break
            if message.role == self.agent and message.text:
                return message.text
        return ""

    def get_token_count(self) -> int:
        """Return the estimated tokens of all messages."""
        return sum(map(estimate_tokens, self._messages))

    def trim_to_limit(self, max_tokens: int, chunk_size: int) -> int:
        """Drop the oldest exchanges of a history above `max_tokens` and return the number of dropped messages.

        Exchanges go in chunks of at least `chunk_size` tokens until less than `max_tokens - chunk_size` are left; with
        `chunk_size` 0, no more go than necessary. An exchange is a user message and everything up to the next one. So
        the rest starts with a user message and keeps each result with its call. The newest exchange is never dropped.
        """
        remaining = self.get_token_count()
        if remaining <= max_tokens:
            return 0
        target = max_tokens if chunk_size == 0 else max_tokens - chunk_size - 1
        starts = [index for index, message in enumerate(self._messages) if message.role == "user"]
        chunk = n_dropped = 0
        for start, end in itertools.pairwise([0, *starts]):
            if chunk >= chunk_size:
                if remaining <= target:
                    break
                chunk = 0
            size = sum(map(estimate_tokens, self._messages[start:end]))
            remaining, chunk, n_dropped = remaining - size, chunk + size, end
        del self._messages[:n_dropped]
        return n_dropped

    def restore(self, messages: Iterable[Message]) -> None:
        """Replace the history by messages in the form of requests."""
        self._messages = [
            replace(message, role=self.agent, name=None) if message.role == "agent" else message for message in messages
        ]

    def clear(self) -> None:
        self._messages.clear()
