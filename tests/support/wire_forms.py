"""Forms of answers, refusals, verdicts and tool results that servers send, each with its one meaning."""

from __future__ import annotations

import json
from typing import Any

from support.paths import TESTS

WIRE = TESTS / "contract" / "wire"


def rows_of(name: str) -> list[dict[str, Any]]:
    lines = (WIRE / name).read_text(encoding="utf-8").strip().split("\n")  # texts hold other line ends
    return [json.loads(line) for line in lines]


def siblings(group: str) -> list[dict[str, Any]]:
    """Return the rows of a group in `siblings.jsonl`: similar to reported faults, written without reading the code."""
    return [row for row in rows_of("siblings.jsonl") if row["group"] == group]
