"""JSON as bytes, fast: msgspec does it, and the standard library what that refuses.

It refuses half a surrogate pair and integers beyond 64 bits, which a model may write. Numbers that JSON has no word for
(NaN) are null. Dataclasses of ours leave out fields at their default.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentlab.core.strict_json import parse_json

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def dumps(value: Any) -> bytes:
    """Plain JSON values as one line of JSON; raises TypeError or ValueError for what is none."""
    try:
        return _encode(value)
    except (OverflowError, UnicodeError):
        return json.dumps(value).encode()


def loads(data: bytes) -> Any:
    """Raises ValueError for what is not JSON, or is none that `parse_json` reads."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return parse_json(data)
