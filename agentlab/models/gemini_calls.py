"""Function calls that Gemini streams in pieces, put together, and events repaired before the SDK validates them.

{"functionCall": {"name": "book", "willContinue": true}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Par", "willContinue": true}], ...}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "is"}], "willContinue": true}}
{"functionCall": {}}                                    # book(city="Paris")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

MAX_LIST_ITEMS = 10_000
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")

_SNAKE_CASE = re.compile(rb'"(finish|usage|prompt)_([rmf])(?=eason"|etadata"|eedback")')
"""Names that some compatible servers write and the SDK ignores."""
_INVALID_SIGNATURE = re.compile(rb'"thought_?[Ss]ignature":\s*"(?!(?:[\w+/-]{4})*(?:[\w+/-]{2,3}=*)?")[^"]+"')
"""Signature that is no base64, for which the SDK would refuse the answer."""
_ERROR = re.compile(rb'^data:\s*\{(?:"[^{}]*,\s*)?"error":\s*\{(?=\s*")')
"""Error behind other fields, or without a code, which the SDK ignores or refuses."""
AS_TEXT = "arguments as text"
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_VALUE = rb'%b|\[(?:[^\[\]"]|%b|\[(?:[^\[\]"]|%b)*\])*\]|true|false|-?\d[\d.eE+-]*' % (_TEXT, _TEXT, _TEXT)
_NO_OBJECT = re.compile(rb'("functionCall":\s*\{(?:[^{}"]|"[^"]*")*"args":\s*)(%b)' % _VALUE)
"""Arguments that are no object, for which the SDK would refuse the answer; they become the only argument AS_TEXT."""


async def repair_events(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the response to a request, with repaired lines: a middleware of aiohttp."""
    response = await handler(request)
    response.content = _RepairedBody(response.content)
    return response


class _RepairedBody:
    def __init__(self, body: Any) -> None:
        self._body = body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_any(self) -> AsyncIterator[bytes]:
        async for line in self._body:
            renamed = _SNAKE_CASE.sub(lambda name: b'"%b%b' % (name[1], name[2].upper()), line)
            with_objects = _NO_OBJECT.sub(rb'\1{"%b":\2}' % AS_TEXT.encode(), renamed)
            with_code = _ERROR.sub(rb'data: {"error":{"code":0,', with_objects)
            yield _INVALID_SIGNATURE.sub(b'"thoughtSignature":""', with_code)


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
