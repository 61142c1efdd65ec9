"""Decide which flow may be shipped, from a comparison. `headline` writes the sentence.

`Ship X` means, against every other flow:

* In every primary quality, a test at level .95 excludes a mean loss of `MARGIN` or more (`margin_p_value`). The test
  also runs if X is better or all turns are equal. It runs per turn and, if lengths differ, per conversation.
* X is significantly better in a primary measure, or cheaper.

X has to pass each of these tests, so no test is corrected for the others (intersection-union test; Berger,
Multiparameter hypothesis testing and acceptance sampling, 1982). Everything else is undecided, in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from agentlab.data.datasets import Dataset
from agentlab.evals.compare.family import run_family_test
from agentlab.evals.compare.judgement import Judgement, bound_of_all, format_needed, loss_p_value, more_if_equal
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, pair_measure
from agentlab.evals.compare.pairs import ALPHA, FlowPair
from agentlab.evals.stats.planning import MARGIN, Needed, more_to_exclude
from agentlab.evals.store.measures import LATENCY, is_quality
from agentlab.evals.store.run import StoredRun

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

    def __init__(
        self,
        flow: str,
        other: str,
        tables: Mapping[str, TurnTable],
        decide: Sequence[str],
        paired: Mapping[str, PairedMeasure] = MappingProxyType({}),
    ) -> None:
        """Take measures that are already paired, with `other` as A."""
        self.flow, self.other = flow, other
        self._tables, self._decide, self._paired = (tables[other], tables[flow]), decide, dict(paired)
        self.qualities = [self._pair(name) for name in decide if is_quality(name)]

    def _pair(self, name: str) -> PairedMeasure:
        if name not in self._paired:
            self._paired[name] = pair_measure(name, *self._tables)
        return self._paired[name]

    @cached_property
    def open(self) -> list[PairedMeasure]:
        """The qualities in which a loss of `MARGIN` is not excluded."""
        return [paired for paired in self.qualities if loss_p_value(paired, MARGIN) > ALPHA]

    @cached_property
    def shown(self) -> dict[str, Judgement]:
        """The measures that are shown to differ: those that decide, and costs beside them."""
        costs = [name for name in FEWER if name not in self._decide and name != LATENCY]
        known = [name for name in (*self._decide, *costs) if all(table.column(name)[1].any() for table in self._tables)]
        paired = [self._pair(name) for name in known]
        tests = run_family_test(paired, ALPHA, two_sided=True, families=[name in self._decide for name in known])
        judgements = (
            Judgement(flow=self.flow, paired=column, **test._asdict(), alpha=ALPHA)
            for column, test in zip(paired, tests, strict=True)
        )
        return {each.measure.name: each for each in judgements if each.is_shown}

    @cached_property
    def bounds(self) -> dict[str, float]:
        """The largest mean loss of each quality that is not excluded; unknown qualities are left out."""
        bounds = {paired: bound_of_all(paired, 1.0, ALPHA) for paired in self.qualities if len(paired.differences)}
        return {paired.measure.name: paired.max_change[0] if b is None else b for paired, b in bounds.items()}

    @property
    def open_bounds(self) -> dict[str, float]:
        """The bounds of the qualities in which a loss of `MARGIN` is not excluded."""
        names = [paired.measure.name for paired in self.open]
        return {name: bound for name, bound in self.bounds.items() if name in names}

    @cached_property
    def more(self) -> Needed | None:
        """The numbers of more conversations, if both are equally good, that exclude `MARGIN`; None if none is known."""
        needed = [more_if_equal(paired, MARGIN, ALPHA) for paired in self.open if len(paired.differences)]
        return max((each for each in needed if each), default=None) if None not in needed else None

    @property
    def gains(self) -> list[str]:
        """The measures in which the flow is shown better or cheaper."""
        return [name for name, each in self.shown.items() if each.kind == "better"]

    @property
    def wins(self) -> list[str]:
        """The qualities that decide in which the flow is shown better."""
        return [name for name in self.gains if is_quality(name)]

    @property
    def losses(self) -> list[str]:
        """The qualities that decide in which the flow is shown worse."""
        return [name for name, each in self.shown.items() if each.kind == "worse" and is_quality(name)]


def contrasts_of(
    tables: Mapping[str, TurnTable], decide: Sequence[str], pairs: Sequence[FlowPair] = ()
) -> dict[str, list[Contrast]]:
    """Return each flow against every other one; empty where no quality decides or the turns are not the same.

    `pairs` are comparisons of some of the flows, whose measures are already paired.
    """
    if not any(is_quality(name) for name in decide) or len({tuple(table.keys) for table in tables.values()}) > 1:
        return {}
    paired = {(pair.b, pair.a): pair.paired for pair in pairs}
    return {
        flow: [
            Contrast(flow, other, tables, decide, paired.get((flow, other), {})) for other in tables if other != flow
        ]
        for flow in tables
    }


def plan_note(datasets: Sequence[Dataset]) -> str:
    """Return a line on a run that is too short to ship a flow, even if two flows are equal; "" if it is not."""
    turns = np.array([len(each.scored_turns) for d in datasets for each in d.conversations], dtype=float)
    longest = max((float(d.longest) for d in datasets), default=0.0)
    needed = more_to_exclude(np.zeros(len(turns)), turns, MARGIN, 1.0, longest=longest)
    return format_needed(needed, MARGIN) if needed and needed.high > 1 else ""


def winners(contrasts: Mapping[str, Sequence[Contrast]]) -> list[str]:
    """Return the flows that may be shipped by the rule of this module; more than one is a trade."""
    passing = [flow for flow, own in contrasts.items() if not any(contrast.open for contrast in own)]
    return [flow for flow in passing if all(contrast.gains for contrast in contrasts[flow])]
