"""Sets of flows without a shown difference from the best, one for each primary quality, in one sentence.

The sets are model confidence sets (Hansen, Lunde and Nason, The Model Confidence Set, Econometrica 2011) with the range
statistic. While the largest difference between two flows of a set is larger than chance allows, the worse one leaves
the set. Chance is measured by sign flips of whole conversations, which all pairs and qualities share. So the level
holds for all sets together: a best flow is missing in at most `ALPHA` of all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentlab.core.constants import JUDGE_METRIC_PREFIX
from agentlab.evals.compare.paired import TurnTable, pair_measure
from agentlab.evals.stats.sign_flips import TIE, SignFlips
from agentlab.evals.stats.statistics import CONFIDENCE
from agentlab.evals.store.measures import COSTS, Measure, measure

ALPHA = 1 - CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class FlowMean:
    """Mean of one flow, and True if no difference from the best is shown."""

    flow: str
    mean: float
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Best:
    """Flows without a shown difference from the best, by primary quality; `str()` gives a sentence."""

    sets: Mapping[Measure, tuple[FlowMean, ...]]
    """Flows of each primary quality, the best mean first."""
    conversations: int

    def __str__(self) -> str:
        count = len(next(iter(self.sets.values())))
        data = f"{count} flows, {self.conversations} conversation{'' if self.conversations == 1 else 's'}"
        parts = []
        for quality, flows in self.sets.items():
            names = [f"{flow.flow} ({quality.show(flow.mean)})" for flow in flows if flow.is_best]
            parts += [f"best in {quality.name}, or not shown worse: {', '.join(names)}"] if len(names) < count else []
        if not parts:
            return f"no difference between the flows shown in a primary quality ({data})"
        return f"{'; '.join(parts)} ({data}, error at most {ALPHA:.2f})"


def best(flows: Mapping[str, TurnTable], primary: Sequence[str]) -> Best | None:
    """Return the best flows of at least three on the same turns; None if no primary quality is known for all."""
    # A judge's own scores decide nothing.
    names = [name for name in primary if measure(name) not in COSTS and not name.startswith(JUDGE_METRIC_PREFIX)]
    names = [name for name in names if all(_is_known(table, name) for table in flows.values())]
    if not names:
        return None
    sets = {}
    for name, inside in zip(names, _confidence_sets([*flows.values()], names), strict=True):
        means = []
        for position, (label, table) in enumerate(flows.items()):
            values, applies = table.column(name)
            means.append(FlowMean(flow=label, mean=float(values[applies].mean()), is_best=position in inside))
        sets[measure(name)] = tuple(sorted(means, key=lambda flow: -flow.mean))
    return Best(sets=sets, conversations=next(iter(flows.values())).conversations)


def _is_known(table: TurnTable, name: str) -> bool:
    values, applies = table.column(name)
    return bool(applies.any()) and not np.isnan(values[applies]).any()


def _confidence_sets(flows: Sequence[TurnTable], names: Sequence[str]) -> list[set[int]]:
    """Return the positions of the flows without a shown difference from the best, for each of `names`."""
    sets = [set(range(len(flows))) for _ in names]
    pairs = [(m, a, b) for m in range(len(names)) for a in sets[m] for b in sets[m] if a < b]
    sums = np.column_stack([pair_measure(names[m], flows[a], flows[b]).sums for m, a, b in pairs])
    if not sums.any():
        return sets
    tests, total = SignFlips(sums, two_sided=True), sums.sum(axis=0)
    while inside := [index for index, (m, a, b) in enumerate(pairs) if {a, b} <= sets[m]]:
        largest = inside[int(np.argmax(tests.observed[inside]))]
        chance = tests.null_sums[:, inside].max(axis=1)
        if tests.p_value((chance >= tests.observed[largest] - TIE).sum()) > ALPHA:
            break
        m, a, b = pairs[largest]
        sets[m].discard(b if total[largest] > 0 else a)
    return sets
