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
class RankedFlow:
    """Mean of one flow, and True if no other flow is shown to be better."""

    flow: str
    mean: float
    """Mean of the measure that separates flows."""
    is_best: bool
    """True if no other flow is shown to be better in it."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """Best flows of a run in the first primary quality that separates flows; `str()` gives a sentence."""

    measure: Measure
    places: tuple[RankedFlow, ...]
    """Flows, the best mean first."""
    shown: bool = False
    """True if the smaller family of the comparison shows a quality to differ between two flows."""

    def __str__(self) -> str:
        names = [f"{place.flow} ({self.measure.show(place.mean)})" for place in self.places if place.is_best]
        many, name = len(self.places), self.measure.name
        if len(names) == many:
            together = " in a test of all pairs" if self.shown else ""
            return f"no primary quality separates the {many} flows{together}"
        equal = ", no difference shown" if len(names) > 1 else ""
        return f"best in {name} of {many} flows: {' or '.join(names)}{equal}"

    def to_json(self) -> dict[str, Any]:
        return {"measure": self.measure.name, "says": str(self), "flows": [asdict(place) for place in self.places]}


def best(flows: Mapping[str, TurnTable], decide: Sequence[str], *, shown: bool = False) -> Best | None:
    """Return the best of at least three flows on the same turns; None if no primary quality is known for all.

    The first quality that separates any flows counts. `shown` is as in `Best`.
    """
    names = [name for name in decide if measure(name) not in COSTS and all(_is_known(s, name) for s in flows.values())]
    if not names:
        return None
    better = _shown_better([*flows.values()], names)
    first = next((number for number, matrix in enumerate(better) if matrix.any()), 0)
    beaten, name = better[first].any(axis=0), names[first]
    signs = 1.0 if measure(name).better == "higher" else -1.0
    ranked = []
    for (label, table), lost in zip(flows.items(), beaten.tolist(), strict=True):
        values, applies = table.column(name)
        ranked.append(RankedFlow(flow=label, mean=float(values[applies].mean()), is_best=not lost))
    return Best(measure=measure(name), places=tuple(sorted(ranked, key=lambda flow: -signs * flow.mean)), shown=shown)


def _is_known(table: TurnTable, name: str) -> bool:
    values, applies = table.column(name)
    return bool(applies.any()) and not np.isnan(values[applies]).any()


def _shown_better(flows: Sequence[TurnTable], names: Sequence[str]) -> np.ndarray:
    """Return True at [m, i, j] if flow i is shown to be better than flow j in names[m], by maxT over all pairs."""
    size, better = len(flows), np.zeros((len(names), len(flows), len(flows)), dtype=bool)
    pairs = [(m, one, other) for m in range(len(names)) for one in range(size) for other in range(one + 1, size)]
    paired = [pair_measure(names[m], flows[one], flows[other]) for m, one, other in pairs]
    losses = np.column_stack([pair.sums for pair in paired])
    if not losses.any():
        return better
    outcome, tests = SignFlips(losses, two_sided=True).test(), int(losses.any(axis=0).sum())
    for (m, one, other), pair, p, lost in zip(pairs, paired, outcome.p_adjusted, losses.sum(axis=0), strict=True):
        if p < ALPHA or (
            pair.is_constant_shift and constant_shift_p_value(pair.conversations, two_sided=True) * tests < ALPHA
        ):
            better[(m, one, other) if lost > 0 else (m, other, one)] = True
    return better
