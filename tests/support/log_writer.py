"""A process that writes to a log of tagged entries."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from agentlab.memory.tagged_log import Entry, TaggedLog

NOON = datetime(2026, 1, 5, 12)


def entry(text: str, **facts: str) -> Entry:
    return Entry(module="ego", time=NOON, text=text, facts=facts)


def write_entries(path: Path, name: str) -> None:
    log = TaggedLog(path)
    for number in range(20):
        log.add(entry(f"{name} {number}"))
        if number % 5 == 4:
            log.remove(log.entries()[:1])
