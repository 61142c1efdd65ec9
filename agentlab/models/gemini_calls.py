"""Function calls that Gemini streams in pieces, put together.

{"functionCall": {"name": "book", "willContinue": true}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Par", "willContinue": true}], ...}}
{"functionCall": {"partialArgs": [{"jsonPath": "$.city", "stringValue": "is"}], "willContinue": true}}
{"functionCall": {}}                                    # book(city="Paris")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MAX_LIST_ITEMS = 10_000
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


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
        elif partial.bool_value is not None:
            node[step] = partial.bool_value
        elif (number := partial.number_value) is not None:
            node[step] = int(number) if float(number).is_integer() else number
        else:
            node[step] = None
