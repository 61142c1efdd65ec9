"""Damaged and edited files: bytes flipped, cut or doubled, and values of a wrong type."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

DEEP: Any = "end"
for _ in range(150):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(None, True, 0, -1, 2**63, 10**400, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "\x00", "x" * 5000, "a\nb\x1b[2J", [], {}, [[]], {"kind": "step"}, [None], DEEP),
]
BYTES = [b"", b"\x00", b"\xff\xfe", b"NaN", b"1e999", b"[" * 2000, b'"', b"\n", b"}", b"- " * 200, b"&a [*a]"]


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every value in JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(position for key, each in inner for position in places(each, (*way, key)))]


def changed(value: Any, way: tuple[Any, ...], put: Any, *, drop: bool) -> Any:
    """Return `value` with the part at the path `way` replaced, or with its key dropped."""
    if not way:
        return put
    copy = value.copy()
    if drop and len(way) == 1:
        del copy[way[0]]
    else:
        copy[way[0]] = changed(copy[way[0]], way[1:], put, drop=drop)
    return copy


@st.composite
def mutated(draw: st.DrawFn, content: bytes, *, is_json: bool = True) -> bytes:
    """`content`, lines of JSON, with a few places damaged or edited."""
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(["value", "value", "drop", "bytes", "cut", "line"]))
        lines = content.split(b"\n")
        number = draw(st.integers(0, len(lines) - 1))
        if how in ("value", "drop") and is_json:
            content = draw(_edited(content, lines, number, drop=how == "drop"))
        elif how == "cut":
            content = content[: draw(st.integers(0, len(content)))]
        elif how == "line":
            lines.insert(draw(st.integers(0, len(lines))), lines[number])
            content = b"\n".join(lines)
        else:
            at, width = draw(st.integers(0, len(content))), draw(st.integers(0, 8))
            content = content[:at] + draw(st.sampled_from(BYTES)) + content[at + width :]
    return content


@st.composite
def _edited(draw: st.DrawFn, content: bytes, lines: list[bytes], number: int, *, drop: bool) -> bytes:
    for text, whole in ((lines[number], False), (content, True)):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue
        row = changed(row, draw(st.sampled_from(places(row))), draw(st.sampled_from(VALUES)), drop=drop)
        written = json.dumps(row).encode()
        return written if whole else b"\n".join([*lines[:number], written, *lines[number + 1 :]])
    return content
