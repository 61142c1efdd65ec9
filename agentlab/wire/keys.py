"""What a call is found by among the recordings: a hash of exactly what decides its answer.

Ids that only name an exchange are normalised first; everything else that reaches a provider changes the key.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agentlab.core.messages import Message, Request, Role, field_defaults, is_text_only, to_json

IGNORED_KEYS = frozenset({"id", "created", "created_at", "timestamp"})
"""Keys of a provider's own data beside a message that name the exchange, not its content."""

_encode = msgspec.json.Encoder().encode
_SETTINGS = [field for field in field_defaults(Request) if field[0] not in ("messages", "tools")]

Row = dict[str, Any]
Occurrence = int | list[int]
"""A count; in work that runs side by side, the numbers of the branches that lead to it and then a count, so that who
was faster changes no key."""


def digest(value: Any) -> str:
    """32 hex digits of SHA-256 over `value` as JSON, in the order its keys have: a model reads them in that order."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class NormalisedRequest:
    """A request as it is stored: volatile ids normalised, messages and tools taken out and named by their hash."""

    fields: Row
    parts: Mapping[str, Row]
    """`message` and `tool` lines by id."""

    def key(self, repeat: Occurrence) -> str:
        """`repeat` counts how often the conversation asked exactly this before: a second try is a call of its own."""
        return digest([self.fields, repeat])


def normalise_request(model: str, endpoint: str, request: Request, epoch: int) -> NormalisedRequest:
    """What decides the answer to `request`; `endpoint` is the kind of server and whatever else the adapter adds."""
    parts: dict[str, Row] = {}

    def intern(kind: str, content: Row) -> str:
        name = digest(content)
        parts[name] = {"kind": kind, "id": name, kind: content}
        return name

    messages = []
    rank: dict[str, str] = {}
    for message in request.messages:
        if not is_text_only(message):
            messages.append(intern("message", _normalised(message, rank)))
        else:
            name, part = _plain(message.role, message.text, message.name)
            parts[name] = part
            messages.append(name)
    tools = [intern("tool", to_json(tool)) for tool in request.tools]
    named = {"model": model, "endpoint": endpoint, "epoch": epoch, "messages": messages, "tools": tools}
    return NormalisedRequest({**named, **settings_of(request)}, parts)


def settings_of(request: Request) -> Row:
    """All but the messages and the tools."""
    return {name: value for name, default in _SETTINGS if (value := getattr(request, name)) != default}


def in_flight_key(model: str, endpoint: str, request: Request, epoch: int) -> str:
    """What finds the request among those under way, where nothing is recorded: good for this process, and cheap."""
    if all(map(is_text_only, request.messages)):
        with contextlib.suppress(ValueError, TypeError):  # half a surrogate pair; a schema that is no JSON
            return _encode((model, endpoint, epoch, request)).decode()
    return normalise_request(model, endpoint, request, epoch).key(0)


@functools.lru_cache(maxsize=1024)
def _plain(role: Role, text: str, name: str | None) -> tuple[str, Row]:
    # Most messages of a request were in the last one too, and hashing them is most of the work of a replay.
    message = to_json(Message(role=role, text=text, name=name))
    identity = digest(message)
    return identity, {"kind": "message", "id": identity, "message": message}


def _normalised(message: Message, rank: dict[str, str]) -> Row:
    """A message as JSON, tool-call ids by their rank of appearance: only who answers whom is left of them."""
    row: Row = to_json(message)
    for call in row.get("tool_calls", ()):
        call["id"] = rank.setdefault(call["id"], f"call {len(rank) + 1}")
        _drop_volatile(call)
    if "tool_call_id" in row:
        row["tool_call_id"] = rank.setdefault(row["tool_call_id"], f"call {len(rank) + 1}")
    _drop_volatile(row)
    return row


def _drop_volatile(row: Row) -> None:
    if "extra" in row:
        row["extra"] = {name: value for name, value in row["extra"].items() if name not in IGNORED_KEYS}


def text_key(kind: str, model: str, text: str, endpoint: str = "") -> str:
    """`kind` is `embedding` for a query, somebody's latency, and `vector` for a text that nobody waits for."""
    return digest([kind, model, text, *([endpoint] if endpoint else ())])


def duration_key(work: Any) -> str:
    """`work` is JSON that says what was done and what came of it."""
    return digest(["duration", work])


def result_key(of: str, facts: Any) -> str:
    """`of` is the kind of thing that was fetched, `facts` is JSON that says what was asked for."""
    return digest(["result", of, facts])
