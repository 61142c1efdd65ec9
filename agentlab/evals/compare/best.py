"""Which of several flows: those that no other one is shown to beat, in one sentence.

All pairs of flows in all qualities that decide are one family, tested by flipping the signs of conversations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agentlab.evals.compare.family import constant_shift_p_value
from agentlab.evals.compare.paired import TurnTable, pair_measure
from agentlab.evals.stats.sign_flips import SignFlips
from agentlab.evals.stats.statistics import CONFIDENCE
from agentlab.evals.store.measures import COSTS, Measure, measure

ALPHA = 1 - CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Place:
    """Of one flow."""

    flow: str
    mean: float
    """Of the measure that tells flows apart."""
    is_best: bool
    """Whether no other one is shown to be better in it."""


@dataclass(frozen=True, kw_only=True)
class Best:
    measure: Measure
    places: tuple[Place, ...]
    """The highest mean first."""
    shown: bool = False
    """Whether a quality is shown to differ between two flows by a smaller family, that of the comparison."""

    def __str__(self) -> str:
        names = [f"{place.flow} ({self.measure.show(place.mean)})" for place in self.places if place.is_best]
        many, name = len(self.places), self.measure.name
        if len(names) == many:
            told = " once all pairs are tested together" if self.shown else ""
            return f"no quality that decides tells the {many} flows apart{told}"
        apart = ", not told apart" if len(names) > 1 else ""
        return f"best in {name} of {many} flows: {' or '.join(names)}{apart}"

    def to_json(self) -> dict[str, Any]:
        return {"measure": self.measure.name, "says": str(self), "flows": [asdict(place) for place in self.places]}


def best(flows: Mapping[str, TurnTable], decide: Sequence[str], *, shown: bool = False) -> Best | None:
    """Of three flows and more on the same turns; None where no quality that decides is known of all.

    The first quality that tells any flows apart counts; `shown` as of `Best`.
    """
    names = [name for name in decide if measure(name) not in COSTS and all(_is_known(s, name) for s in flows.values())]
    if not names:
        return None
    better = _shown_better([*flows.values()], names)
    place = next((number for number, found in enumerate(better) if found.any()), 0)
    beaten, name = better[place].any(axis=0), names[place]
    signs = 1.0 if measure(name).better == "higher" else -1.0
    found = []
    for (label, sheet), lost in zip(flows.items(), beaten.tolist(), strict=True):
        values, there = sheet.column(name)
        found.append(Place(flow=label, mean=float(values[there].mean()), is_best=not lost))
    return Best(measure=measure(name), places=tuple(sorted(found, key=lambda of: -signs * of.mean)), shown=shown)


def _is_known(sheet: TurnTable, name: str) -> bool:
    values, there = sheet.column(name)
    return bool(there.any()) and not np.isnan(values[there]).any()


def _shown_better(flows: Sequence[TurnTable], names: Sequence[str]) -> np.ndarray:
    """Whether flow i is shown to be better than flow j, by maxT over all pairs and names; shape (M, flows, flows)."""
    size, better = len(flows), np.zeros((len(names), len(flows), len(flows)), dtype=bool)
    pairs = [(m, one, other) for m in range(len(names)) for one in range(size) for other in range(one + 1, size)]
    paired = [pair_measure(names[m], flows[one], flows[other]) for m, one, other in pairs]
    losses = np.column_stack([pair.sums for pair in paired])
    if not losses.any():
        return better
    found, tests = SignFlips(losses, two_sided=True).test(), int(losses.any(axis=0).sum())
    for (m, one, other), pair, p, lost in zip(pairs, paired, found.p_adjusted, losses.sum(axis=0), strict=True):
        if p < ALPHA or (
            pair.is_constant_shift and constant_shift_p_value(pair.conversations, two_sided=True) * tests < ALPHA
        ):
            better[(m, one, other) if lost > 0 else (m, other, one)] = True
    return better
