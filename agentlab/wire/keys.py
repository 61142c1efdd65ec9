"""Keys of recordings: a hash of everything that determines the result of a call.

Ids that only name an exchange are normalised first; every other field that reaches a provider changes the key.
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
"""Keys of provider data in a message that name the exchange, not its content."""

_encode = msgspec.json.Encoder().encode
_SETTINGS = [field for field in field_defaults(Request) if field[0] not in ("messages", "tools")]

Row = dict[str, Any]
Occurrence = int | list[int]
"""Count of equal calls so far. In parallel work it is a list: numbers of the branches, then the count in the branch.

So no key depends on the speed of a branch.
"""


def digest(value: Any) -> str:
    """Return 32 hex digits of SHA-256 over `value` as JSON; keys keep their order, in which a model reads them."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class NormalisedRequest:
    """Request in its stored form: ids normalised, messages and tools replaced by their hashes."""

    fields: Row
    parts: Mapping[str, Row]
    """`message` and `tool` lines by id."""

    def key(self, occurrence: Occurrence) -> str:
        """Return the key; `occurrence` counts equal calls so far: a repeated call has its own recording."""
        return digest([self.fields, occurrence])


def normalise_request(model: str, endpoint: str, request: Request, epoch: int) -> NormalisedRequest:
    """Return everything that determines the completion of `request`.

    `endpoint` is the kind of server and any further settings that the provider adds.
    """
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
    """Return the settings of a request that differ from their default, without messages and tools."""
    return {name: value for name, default in _SETTINGS if (value := getattr(request, name)) != default}


def in_flight_key(model: str, endpoint: str, request: Request, epoch: int) -> str:
    """Return a key for single flight without recordings; it is cheap and valid in this process only."""
    if all(map(is_text_only, request.messages)):
        with contextlib.suppress(ValueError, TypeError):  # half a surrogate pair, or a schema that is not JSON
            return _encode((model, endpoint, epoch, request)).decode()
    return normalise_request(model, endpoint, request, epoch).key(0)


@functools.lru_cache(maxsize=1024)
def _plain(role: Role, text: str, name: str | None) -> tuple[str, Row]:
    # Most messages repeat from request to request, and hashing them is most of the work of a replay.
    message = to_json(Message(role=role, text=text, name=name))
    identity = digest(message)
    return identity, {"kind": "message", "id": identity, "message": message}


def _normalised(message: Message, rank: dict[str, str]) -> Row:
    """Return a message as JSON with tool-call ids replaced by their order of appearance."""
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
    """Return the key of a vector; `kind` is `embedding` for a query and `vector` for a text outside any latency."""
    return digest([kind, model, text, *([endpoint] if endpoint else ())])


def duration_key(work: Any) -> str:
    """Return the key of a duration; `work` is JSON that identifies the work and its result."""
    return digest(["duration", work])


def result_key(kind: str, facts: Any) -> str:
    """Return the key of a fetched result; `kind` is its kind, `facts` is JSON that identifies the request."""
    return digest(["result", kind, facts])
