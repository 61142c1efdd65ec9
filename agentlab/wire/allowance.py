"""What a model lets be sent to it just now, as a line of progress tells it; that of workers together, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from msgspec import Struct


class Allowance(Struct, frozen=True, kw_only=True):
    per_minute: Mapping[str, float]
    """`requests` and `tokens`, where somebody knows them."""
    at_once: int | None = None
    """None where as many go as are asked."""
    waiting: int = 0
    refused: int = 0

    def __str__(self) -> str:
        allowed = " and ".join(f"{number:.0f} {what}" for what, number in self.per_minute.items())
        parts = [f"{allowed} a minute"] if allowed else []
        if self.at_once is not None:
            parts.append(f"{self.at_once} at once")
        if self.waiting:
            parts.append(f"{self.waiting} wait")
        if self.refused:
            parts.append(f"{self.refused} refused")
        return ", ".join(parts)


def together(workers: Sequence[Mapping[str, Allowance]]) -> dict[str, Allowance]:
    """By model; a provider tells each worker the same of what it allows all of them."""
    found = {}
    for name in dict.fromkeys(name for worker in workers for name in worker):
        parts = [worker[name] for worker in workers if name in worker]
        few = [part.at_once for part in parts if part.at_once is not None]
        found[name] = Allowance(
            per_minute=reduce(_larger, (part.per_minute for part in parts)),
            at_once=sum(few) if len(few) == len(parts) else None,
            waiting=sum(part.waiting for part in parts),
            refused=sum(part.refused for part in parts),
        )
    return found


def _larger(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    return {what: max(one.get(what, 0.0), other.get(what, 0.0)) for what in {**one, **other}}
