"""Which turns flipped and why: what both sides replied, and the reasons of their scores, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentlab.core.events import shorten
from agentlab.evals.compare.measures import COSTS, Key, turn_name
from agentlab.evals.compare.paired import Paired
from agentlab.evals.results.run import Run


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A turn whose value of a quality metric crossed .5."""

    metric: str
    conversation: str
    turn: int
    epoch: int
    a: float
    b: float

    @property
    def key(self) -> Key:
        return self.conversation, self.turn, self.epoch

    def __str__(self) -> str:
        return f"{self.metric} {self.a:.4g} -> {self.b:.4g}, {turn_name(self.key)}"


def flips(measures: Iterable[Paired]) -> list[Flip]:
    """Of all quality metrics, those that moved most first."""
    found = []
    for paired in measures:
        if paired.measure in COSTS or not len(paired.differences):
            continue
        crossed = np.flatnonzero((paired.a < 0.5) != (paired.b < 0.5))
        found += [
            _flip(paired, place) for place in crossed[np.argsort(-np.abs(paired.differences[crossed]), kind="stable")]
        ]
    return found


def worst(paired: Paired, most: int) -> list[Flip]:
    """The turns that lost most, of any measure; none that lost nothing."""
    if not len(paired.losses):
        return []
    order = np.argsort(-paired.losses, kind="stable")[:most]
    return [_flip(paired, place) for place in order if paired.losses[place] > 0]


def _flip(paired: Paired, place: int) -> Flip:
    conversation, turn, epoch = paired.keys[place]
    a, b = float(paired.a[place]), float(paired.b[place])
    return Flip(metric=paired.measure.name, conversation=conversation, turn=turn, epoch=epoch, a=a, b=b)


def told(flips: Sequence[Flip], sides: Sequence[tuple[str, Run, str]]) -> list[str]:
    """For each flip where it is and what was asked, then of each (name, run, flow) the reply and the score's reason."""
    asked: dict[Key, str] = {}
    said: list[dict[Key, str]] = []
    reasons: list[dict[tuple[Key, str], str]] = []
    wanted = {flip.key for flip in flips}
    for _, run, flow in sides:
        rows = (row for name in sorted({key[0] for key in wanted}) for row in run.folder.turns(flow, name))
        there = {key: row for row in rows if (key := (row.conversation, row.turn, row.epoch)) in wanted}
        asked |= {key: row.user for key, row in there.items()}
        said.append({key: row.reply.text if row.reply else f"FAILED: {row.error}" for key, row in there.items()})
        graded = {
            (key, metric): score.reason for key, row in there.items() for metric, score in (row.scores or {}).items()
        }
        reasons.append(graded)
    lines = []
    for flip in flips:
        lines.append(f"{flip}: {shorten(asked[flip.key])}")
        for (name, _, _), replies, why in zip(sides, said, reasons, strict=True):
            reason = why.get((flip.key, flip.metric), "")
            lines.append(f"    {name}: {shorten(replies[flip.key])}" + (f"  [{shorten(reason)}]" if reason else ""))
    return lines
