"""Which turns flipped and why: what both sides replied, and the reasons of their scores, worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentlab.core.events import shorten
from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.store.measures import COSTS, TurnKey, turn_name
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun


@dataclass(frozen=True)
class Flip:
    """A turn whose value of a quality metric crossed .5."""

    metric: str
    conversation: str
    turn: int
    epoch: int
    a: float
    b: float

    @property
    def key(self) -> TurnKey:
        return self.conversation, self.turn, self.epoch

    def __str__(self) -> str:
        return f"{self.metric} {self.a:.4g} -> {self.b:.4g}, {turn_name(self.key)}"


def flips(measures: Iterable[PairedMeasure]) -> list[Flip]:
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


def largest_losses(paired: PairedMeasure, most: int) -> list[Flip]:
    """The turns that lost most, of any measure; none that lost nothing."""
    if not len(paired.losses):
        return []
    order = np.argsort(-paired.losses, kind="stable")[:most]
    return [_flip(paired, place) for place in order if paired.losses[place] > 0]


def _flip(paired: PairedMeasure, place: int) -> Flip:
    return Flip(paired.measure.name, *paired.keys[place], float(paired.a[place]), float(paired.b[place]))


RepliesByTurn = dict[tuple[str, TurnKey], TurnRow]
"""By flow and turn."""


def replies_of(run: StoredRun, wanted: Collection[tuple[str, TurnKey]]) -> RepliesByTurn:
    """What was said on these turns of these flows; the run is read once for all of them."""
    return {(row.flow, row.key): row for row in run.rows(lambda row: (row.flow, row.key) in wanted)} if wanted else {}


def format_flips(flips: Sequence[Flip], sides: Sequence[tuple[str, RepliesByTurn, str]]) -> list[str]:
    """For each flip where it is and what was asked; of each (name, said, flow) the reply and the score's reason."""
    lines = []
    for flip in flips:
        rows = [(name, rows[flow, flip.key]) for name, rows, flow in sides]
        lines.append(f"{flip}: {shorten(rows[-1][1].user)}")
        for name, row in rows:
            reply = row.reply.text if row.reply else f"FAILED: {row.error}"
            score = (row.scores or {}).get(flip.metric)
            reason = f"  [{shorten(score.reason)}]" if score and score.reason else ""
            lines.append(f"    {name}: {shorten(reply)}{reason}")
    return lines
