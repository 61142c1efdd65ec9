"""Decide which flow may be shipped, from a comparison. `headline` writes the sentence.

`Ship X` means, against every other flow:

* In every primary quality, a test at level .95 excludes a mean loss of `MARGIN` or more (`margin_p_value`). The test
  also runs if X is better or all turns are equal. It runs per turn and, if lengths differ, per conversation.
* X is significantly better in a primary measure, or cheaper.

X has to pass each of these tests, so no test is corrected for the others (intersection-union test; Berger,
Multiparameter hypothesis testing and acceptance sampling, 1982). Everything else is undecided, in numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from agentlab.evals.compare.family import run_family_test
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, pair_measure
from agentlab.evals.compare.pairs import ALPHA
from agentlab.evals.stats.planning import conversations_if_equal
from agentlab.evals.stats.statistics import loss_bound, margin_p_value
from agentlab.evals.store.measures import LATENCY, is_quality
from agentlab.evals.store.run import StoredRun

MARGIN = 0.10
"""Loss of quality that `Ship X` excludes, and smallest difference that matters; per turn or conversation."""
FEWER = {"input_tokens": "fewer input tokens", "llm_calls": "fewer calls", "cost_usd": "cheaper", LATENCY: "faster"}
"""Costs that may favour a flow, with the words for a saving."""


class Side(NamedTuple):
    """A flow, by the name that comparison and page give it."""

    name: str
    run: StoredRun
    flow: str


def sides_of(runs: Sequence[StoredRun]) -> list[Side]:
    """The flows of one run, or those of two as `compare` calls them."""
    if len(runs) == 1:
        return [Side(flow, runs[0], flow) for flow in runs[0].result.flows]
    differ = len({run.run_id for run in runs}) == len(runs)
    return [
        Side(f"{flow} ({run.run_id if differ else run.path})", run, flow) for run in runs for flow in run.result.flows
    ]


class Contrast:
    """One flow against another: which losses of quality are excluded, and what is shown."""

    def __init__(self, flow: str, other: str, tables: Mapping[str, TurnTable], decide: Sequence[str]) -> None:
        self.flow, self.other = flow, other
        self._tables, self._decide = (tables[other], tables[flow]), decide
        self.qualities = [self._pair(name) for name in decide if is_quality(name)]

    def _pair(self, name: str) -> PairedMeasure:
        return pair_measure(name, *self._tables)

    @cached_property
    def open(self) -> list[PairedMeasure]:
        """The qualities in which a loss of `MARGIN` is not excluded."""
        return [paired for paired in self.qualities if not _excludes(paired)]

    @cached_property
    def shown(self) -> dict[str, float]:
        """The mean loss in each measure that is shown to differ: those that decide, and costs beside them."""
        costs = [name for name in FEWER if name not in self._decide and name != LATENCY]
        known = [name for name in (*self._decide, *costs) if all(table.column(name)[1].any() for table in self._tables)]
        paired = [self._pair(name) for name in known]
        tests = run_family_test(paired, ALPHA, two_sided=True, families=[name in self._decide for name in known])
        return {
            name: float(column.losses.mean())
            for name, column, test in zip(known, paired, tests, strict=True)
            if test.p_adjusted is not None and test.p_adjusted < ALPHA
        }

    @cached_property
    def bounds(self) -> dict[str, float]:
        """The largest mean loss of each quality that is not excluded; unknown qualities are left out."""
        bounds = {paired.measure.name: _bound(paired) for paired in self.qualities}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    @property
    def open_bounds(self) -> dict[str, float]:
        """The bounds of the qualities in which a loss of `MARGIN` is not excluded."""
        return {paired.measure.name: bound for paired in self.open if (bound := _bound(paired)) is not None}

    @cached_property
    def more(self) -> tuple[int, int] | None:
        """The numbers of more conversations, if both are equally good, that exclude `MARGIN`; None if none is known."""
        low = high = 0
        for paired in self.open:
            for sums, counts in _estimands(paired):
                needed = conversations_if_equal(sums, counts, MARGIN, ALPHA)
                if needed is None:
                    return None
                low, high = max(low, needed[0] - len(counts)), max(high, needed[1] - len(counts))
        return (low, high) if self.open else None

    @property
    def gains(self) -> list[str]:
        """The measures in which the flow is shown better or cheaper."""
        return [name for name, loss in self.shown.items() if loss < 0]

    @property
    def wins(self) -> list[str]:
        """The qualities that decide in which the flow is shown better."""
        return [name for name in self.gains if is_quality(name)]

    @property
    def losses(self) -> list[str]:
        """The qualities that decide in which the flow is shown worse."""
        return [name for name, loss in self.shown.items() if loss > 0 and is_quality(name)]


def _estimands(paired: PairedMeasure) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield sums and counts of the mean over turns and, where lengths differ, of the mean over conversations."""
    has = paired.counts > 0
    sums, counts = paired.sums[has], paired.counts[has]
    yield sums, counts
    if len(counts) and np.ptp(counts):
        yield sums / counts, np.ones(len(counts))


def _excludes(paired: PairedMeasure) -> bool:
    """Return True if a mean loss of `MARGIN` or more is excluded at level 1 - `ALPHA`; False if a value is unknown."""
    if not len(paired.differences) or paired.conversations < 2:
        return False
    reach = paired.max_change[0]
    return all(margin_p_value(sums, counts, reach, MARGIN) <= ALPHA for sums, counts in _estimands(paired))


def _bound(paired: PairedMeasure) -> float | None:
    """Return the largest mean loss that is not excluded; None where nothing is known."""
    if not len(paired.differences):
        return None
    bounds = [loss_bound(sums, counts, paired.max_change[0], ALPHA) for sums, counts in _estimands(paired)]
    return max((bound for bound in bounds if bound is not None), default=paired.max_change[0])


def contrasts_of(tables: Mapping[str, TurnTable], decide: Sequence[str]) -> dict[str, list[Contrast]]:
    """Return each flow against every other one; empty where no quality decides or the turns are not the same."""
    if not any(is_quality(name) for name in decide) or len({tuple(table.keys) for table in tables.values()}) > 1:
        return {}
    return {flow: [Contrast(flow, other, tables, decide) for other in tables if other != flow] for flow in tables}


def winners(contrasts: Mapping[str, Sequence[Contrast]]) -> list[str]:
    """Return the flows that may be shipped by the rule of this module; more than one is a trade."""
    passing = [flow for flow, own in contrasts.items() if not any(contrast.open for contrast in own)]
    return [flow for flow in passing if all(contrast.gains for contrast in contrasts[flow])]
