"""A model that answers from a queue and remembers what it was asked: for tests, demos and offline notebooks.

    model = Scripted([call("lookup_documents", query="offside"), "Level with the last defender is onside."])

As a file (`scripted/replies.yaml`), with the same kinds of reply:

    loop: true
    replies:
      - tool_calls: [{name: lookup_documents, arguments: {query: offside}}]
      - Level with the last defender is onside.

Token counts are an honest stand-in: four characters are one token, both ways, nothing is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agentlab.core import errors
from agentlab.core.errors import BadRequest, ConfigError
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Completion, Message, Request, ToolCall, Usage
from agentlab.core.protocols import Emit

ScriptedReply = str | Message | Completion | Exception | Callable[[Request], "ScriptedReply"]


def call(name: str, call_id: str = "call_1", **arguments: Any) -> Message:
    """A reply that calls one tool."""
    return Message(role="agent", tool_calls=(ToolCall(id=call_id, name=name, arguments=arguments),))


class Scripted:
    """Replies come in order: text, a Message, a Completion, an exception to raise, or a function of the request."""

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
            raise BadRequest(f"the script has {len(self._replies)} replies and is asked for one more", self.name)
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


def connect(name: str) -> Scripted:
    """Read the replies of `scripted/<file>`; raises ConfigError where the file cannot be used."""
    import yaml

    path = Path(name)
    try:
        script = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read the script {name}: {problem}") from None
    except yaml.YAMLError as problem:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(problem).split())}") from None
    if not isinstance(script, Mapping) or not isinstance(script.get("replies"), list):
        raise ConfigError(f"{name}: a script is a mapping with a list under `replies`")
    unknown = set(script) - {"replies", "loop"}
    if unknown:
        raise ConfigError(f"{name}: unknown key {sorted(unknown)[0]!r}; a script has `replies` and `loop`")
    replies = [_reply(entry, f"{name}: reply {number}") for number, entry in enumerate(script["replies"], 1)]
    return Scripted(replies, loop=bool(script.get("loop", False)), name=f"scripted/{name}")


def _reply(entry: Any, where: str) -> ScriptedReply:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Mapping) and set(entry) <= {"text", "tool_calls"}:
        if not isinstance(entry.get("text", ""), str):
            raise ConfigError(f"{where}: text: {entry['text']!r} is not a string; put it in quotes")
        try:
            made = enumerate(entry.get("tool_calls", []), 1)
            calls = [ToolCall(**{"id": f"call_{number}", **call}) for number, call in made]
            return Message(role="agent", text=entry.get("text", ""), tool_calls=tuple(calls))
        except TypeError as problem:
            raise ConfigError(f"{where}: {problem}") from None
    if isinstance(entry, Mapping) and set(entry) == {"error"}:
        failure = getattr(errors, str(entry["error"]), None)
        if isinstance(failure, type) and issubclass(failure, errors.ModelError):
            return failure("scripted failure")
    raise ConfigError(f"{where}: neither text nor a mapping with `text`, `tool_calls` or `error`")
