"""Reads objects out of JSON replies, as if the model had never heard of their schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from agentlab.core.strict_json import objects_in


def read_object(text: str, key: str | None = None) -> dict[str, Any] | None:
    """The first JSON object in `text`, whatever stands around it, or the first that has `key` where one has.

    None without one in its first braces, and where two say different things of `key`: one of them is a quotation, and
    nobody can tell which.
    """
    first: dict[str, Any] | None = None
    keyed: list[dict[str, Any]] = []
    for found in objects_in(text):
        if key is None:
            return found
        first = first or found
        keyed += [found] * (key in found)
    if key is None or not keyed:
        return first
    return keyed[0] if all(found[key] == keyed[0][key] for found in keyed) else None


def read_unfinished_object(text: str) -> dict[str, Any]:
    """The object whose beginning `text` holds, with the last text in it as far as it goes; {} where there is none."""
    try:
        found = from_json(text[max(0, text.find("{")) :].encode("utf-8", "replace"), allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def text_at(found: Mapping[str, Any], key: str) -> str:
    """The text under `key`, stripped; "" where it is none."""
    value = found.get(key)
    return value.strip() if isinstance(value, str) else ""


def texts_at(found: Mapping[str, Any], key: str, most: int) -> tuple[str, ...]:
    """The first texts of the list under `key` that are not empty, `most` of them at the most."""
    values = found.get(key)
    texts = (value.strip() for value in values if isinstance(value, str)) if isinstance(values, list) else ()
    return tuple(text for text in texts if text)[:most]


def number_at(found: Mapping[str, Any], key: str, low: float, high: float) -> float | None:
    """The number under `key`, also one written as text or in percent, kept between `low` and `high`; else None."""
    value = found.get(key)
    if isinstance(value, str):
        try:
            value = float(value.strip().removesuffix("%"))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return float(min(max(value, low), high))
