"""A model with prepared replies that records its requests: for tests, demos and offline notebooks.

    model = Scripted([call("lookup_documents", query="offside"), "Level with the last defender is onside."])

As a file (`scripted/replies.yaml`), with the same kinds of reply:

    loop: true
    replies:
      - tool_calls: [{name: lookup_documents, arguments: {query: offside}}]
      - Level with the last defender is onside.

Tokens of input and output are counted as characters / 4; none are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from agentlab.core import errors
from agentlab.core.files import read_yaml
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Completion, Message, Request, ToolCall, Usage, from_json
from agentlab.core.protocols import Emit

ScriptedReply = str | Message | Completion | Exception | Callable[[Request], "ScriptedReply"]


def call(name: str, call_id: str = "call_1", **arguments: Any) -> Message:
    """Return a reply that calls one tool."""
    return Message(role="agent", tool_calls=(ToolCall(id=call_id, name=name, arguments=arguments),))


class Scripted:
    """A model that returns prepared replies in order, without weights or network; `requests` keeps its requests.

    A reply is a text, a Message, a Completion, an exception to raise, or a function of the request. `loop=True` starts
    again after the last reply. Tokens are counted as characters / 4. Raises BadRequest if no reply is left.
    """

    parallel = None

    def __init__(self, replies: Iterable[ScriptedReply], *, loop: bool = False, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._replies = list(replies)
        self._loop = loop

    async def complete(self, request: Request, emit: Emit) -> Completion:
        position = len(self.requests)
        self.requests.append(request)
        if self._loop and self._replies:
            position %= len(self._replies)
        if position >= len(self._replies):
            raise errors.BadRequest(f"the script has {len(self._replies)} replies and none is left", self.name)
        reply = self._replies[position]
        while callable(reply):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            reply = Message(role="agent", text=reply)
        if isinstance(reply, Message):
            reply = Completion(
                message=reply,
                usage=Usage(input_tokens=_tokens(*request.messages), output_tokens=_tokens(reply), cached_tokens=0),
                model=self.name,
                finish_reason="tool_calls" if reply.tool_calls else "stop",
            )
        if reply.message.text:
            emit(reply.message.text)
        return reply

    async def close(self) -> None:
        pass


def _tokens(*messages: Message) -> int:
    characters = sum(len(m.text) + sum(len(c.name) + len(str(c.arguments)) for c in m.tool_calls) for m in messages)
    return characters // CHARACTERS_PER_TOKEN


Failure = Literal["RateLimited", "Unreachable", "ServerFault", "ContextOverflow", "Refused", "BadRequest"]


class ScriptEntry(Struct, forbid_unknown_fields=True):
    text: str = ""
    tool_calls: list[dict[str, Any]] = []
    error: Failure | None = None

    def read(self) -> ScriptedReply:
        """Return the reply; calls without an id are numbered. Raises TypeError for an invalid call."""
        if self.error is not None:
            failure: errors.ModelError = getattr(errors, self.error)("scripted failure")
            return failure
        calls = (ToolCall(**{"id": f"call_{number}", **call}) for number, call in enumerate(self.tool_calls, 1))
        return Message(role="agent", text=self.text, tool_calls=tuple(calls))


class Script(Struct, forbid_unknown_fields=True):
    replies: list[str | ScriptEntry]
    loop: bool = False


def connect(name: str) -> Scripted:
    """Read the replies of `scripted/<file>`; raises ConfigError if the file is missing or invalid."""
    try:
        script = from_json(Script, read_yaml(Path(name), "script"))
        replies = [reply if isinstance(reply, str) else reply.read() for reply in script.replies]
    except (ValueError, TypeError) as problem:
        raise errors.ConfigError(f"{name} is not a script: {' '.join(str(problem).split())}") from None
    return Scripted(replies, loop=script.loop, name=f"scripted/{name}")
