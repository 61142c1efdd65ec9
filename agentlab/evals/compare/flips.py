"""Finds the turns that flipped between two sides, and formats both replies with the reasons of their scores."""

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
    """Return the flips of all quality metrics; within a metric the largest change comes first."""
    result = []
    for paired in measures:
        if paired.measure in COSTS or not len(paired.differences):
            continue
        crossed = np.flatnonzero((paired.a < 0.5) != (paired.b < 0.5))
        order = np.argsort(-np.abs(paired.differences[crossed]), kind="stable")
        result += [_flip(paired, index) for index in crossed[order]]
    return result


def largest_losses(paired: PairedMeasure, max_turns: int) -> list[Flip]:
    """Return up to `max_turns` turns with the largest losses in a measure, without turns that lost nothing."""
    if not len(paired.losses):
        return []
    order = np.argsort(-paired.losses, kind="stable")[:max_turns]
    return [_flip(paired, index) for index in order if paired.losses[index] > 0]


def _flip(paired: PairedMeasure, index: int) -> Flip:
    return Flip(paired.measure.name, *paired.keys[index], float(paired.a[index]), float(paired.b[index]))


RepliesByTurn = dict[tuple[str, TurnKey], TurnRow]
"""Flow and turn -> row of the turn."""


def replies_of(run: StoredRun, wanted: Collection[tuple[str, TurnKey]]) -> RepliesByTurn:
    """Return the rows of the `wanted` turns; the run is read once."""
    return {(row.flow, row.key): row for row in run.rows(lambda row: (row.flow, row.key) in wanted)} if wanted else {}


def format_flips(flips: Sequence[Flip], sides: Sequence[tuple[str, RepliesByTurn, str]]) -> list[str]:
    """Return lines for each flip: turn and question, then for each side (name, rows, flow) the reply and the reason."""
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
