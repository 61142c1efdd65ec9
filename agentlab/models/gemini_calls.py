"""Function calls that Gemini streams in pieces, put together, and events repaired before the SDK validates them.

{"functionCall": {"name": "book", "willContinue": true}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Par", "willContinue": true}], ...}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "is"}], "willContinue": true}}
{"functionCall": {}}                                    # book(city="Paris")
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from agentlab.models.refusals import http_status, reported_problem

MAX_LIST_ITEMS = 10_000
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")

_BASE64 = re.compile(r"(?:[\w+/-]{4})*(?:[\w+/-]{2,3}=*)?", re.ASCII)
AS_TEXT = "arguments as text"
"""Only argument of a call whose arguments are no object, for which the SDK would refuse the answer."""


async def repair_events(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the response to a request, with repaired events: a middleware of aiohttp."""
    response = await handler(request)
    response.content = _RepairedBody(response.content)
    return response


class _RepairedBody:
    def __init__(self, body: Any) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_any(self) -> AsyncIterator[bytes]:
        document = b""
        async for line in self._body:
            if line[:5] == b"data:":
                yield _repaired(line[5:].strip())
            elif not re.match(rb"\w*:", line):  # other fields of an event
                document += line
        yield _repaired(document.strip())


def _repaired(data: bytes) -> bytes:
    """Return the events of one event or of a document, which may be a list of them."""
    if data in (b"", b"[DONE]"):
        return b""
    events = json.loads(data)
    objects = filter(lambda event: isinstance(event, dict), events if isinstance(events, list) else [events])
    return b"".join(b"data: %b\n\n" % json.dumps(_repaired_event(event)).encode() for event in objects)


def _repaired_event(event: dict[str, Any]) -> dict[str, Any]:
    candidates = event.get("candidates") or []
    problem = reported_problem(event) if event.get("error") or not candidates else None
    if problem is not None:
        return {"error": {**problem, "code": http_status(problem.get("code"))}}
    for part in (part for each in candidates for part in (each.get("content") or {}).get("parts") or ()):
        call = part.get("functionCall") or part.get("function_call") or {}
        if not isinstance(call.get("args"), dict | None):
            call["args"] = {AS_TEXT: call["args"]}
        for name in part.keys() & {"thoughtSignature", "thought_signature"}:
            part[name] = part[name] if _BASE64.fullmatch(part[name]) else ""
    return _in_camel_case({**event, "candidates": [*map(_in_camel_case, candidates)]})


def _in_camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    # Some compatible servers write names in snake case, which the SDK ignores.
    return {re.sub("_(.)", lambda letter: letter[1].upper(), name): value for name, value in fields.items()}


def joined_calls(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts, each streamed call as one; a call with a name begins the next one."""
    open_call: Any = None
    for part in parts:
        piece = part.function_call
        continues = piece is not None and not piece.name and open_call is not None
        if open_call is not None and not continues:
            yield open_call
            open_call = None
        if piece is None or not (continues or piece.will_continue or piece.partial_args):
            yield part
            continue
        if not continues:
            open_call = part
            piece.args = dict(piece.args or {})
        call = open_call.function_call
        open_call.thought_signature = open_call.thought_signature or part.thought_signature
        for partial in piece.partial_args or ():
            _put(call.args, partial)
        if not piece.will_continue:
            yield open_call
            open_call = None
    if open_call is not None:
        yield open_call


def _put(arguments: dict[str, Any], partial: Any) -> None:
    """Set the value at a path (RFC 9535), or append to its text; raises ValueError for an invalid path."""
    path = partial.json_path or ""
    steps = [int(index) if index else name or single or double for name, index, single, double in _STEP.findall(path)]
    if not steps or _STEP.sub("", path) != "$":
        raise ValueError(f"{path!r} is no path of an argument")
    node: Any = arguments
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(node, list) and isinstance(step, int) and step < MAX_LIST_ITEMS:
            node.extend([None] * (step + 1 - len(node)))
        before = node[step] if isinstance(node, list) else node.get(step)
        if following is not None:
            node[step] = before if before is not None else [] if isinstance(following, int) else {}
            node = node[step]
        elif partial.string_value is not None:
            node[step] = (before if isinstance(before, str) else "") + partial.string_value
        elif (number := partial.number_value) is not None:
            node[step] = int(number) if float(number).is_integer() else number
        else:
            node[step] = partial.bool_value  # None without any value
