"""Readers for JSON objects in replies, which need not follow the schema of the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from agentlab.core.strict_json import objects_in


def read_object(text: str, key: str | None = None) -> dict[str, Any] | None:
    """Return the first JSON object in `text`, or the first one with `key` if there is one.

    The result is None if no object starts in the first braces of `text`. It is also None if two objects have different
    values for `key`: one of them is a quotation, and the text does not show which.
    """
    decoded = [*objects_in(text)]
    keyed = [each for each in decoded if key in each]
    if key is None or not keyed:
        return next(iter(decoded), None)
    return keyed[0] if all(each[key] == keyed[0][key] for each in keyed) else None


def read_unfinished_object(text: str) -> dict[str, Any]:
    """Return the object that starts in `text`, with its last string as far as it is complete; {} without one."""
    try:
        partial = from_json(text[max(0, text.find("{")) :].encode("utf-8", "replace"), allow_partial="trailing-strings")
    except ValueError:
        return {}
    return partial if isinstance(partial, dict) else {}


def text_at(data: Mapping[str, Any], key: str) -> str:
    """Return the text under `key`, stripped; "" if the value is no text."""
    value = data.get(key)
    return value.strip() if isinstance(value, str) else ""


def texts_at(data: Mapping[str, Any], key: str, max_count: int) -> tuple[str, ...]:
    """Return the first `max_count` non-empty texts of the list under `key`."""
    values = data.get(key)
    texts = (value.strip() for value in values if isinstance(value, str)) if isinstance(values, list) else ()
    return tuple(text for text in texts if text)[:max_count]


def number_at(data: Mapping[str, Any], key: str, low: float, high: float) -> float | None:
    """Return the number under `key`, clipped to `low` and `high`; None without one. A text such as "80%" counts."""
    value = data.get(key)
    if isinstance(value, str):
        try:
            value = float(value.strip().removesuffix("%"))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return float(min(max(value, low), high))
