"""Decide which flow may be shipped, from a comparison. `headline` writes the sentence.

`Ship X` means, against every other flow:

* In every primary quality, a test at level .95 excludes a mean loss of `MARGIN` or more (`margin_p_value`). The test
  also runs if X is better or all turns are equal. It runs per turn and, if lengths differ, per conversation.
* X is significantly better in a primary measure, or cheaper.

X has to pass each of these tests, so no test is corrected for the others (intersection-union test; Berger,
Multiparameter hypothesis testing and acceptance sampling, 1982). Everything else is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from agentlab.data.datasets import Dataset
from agentlab.evals.compare.family import MeasureOutcome, run_family_test
from agentlab.evals.compare.measure_verdict import (
    MeasureVerdict,
    VerdictKind,
    bound_of_all,
    format_needed,
    loss_p_value,
    more_if_equal,
)
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, pair_measure
from agentlab.evals.compare.pairs import ALPHA
from agentlab.evals.stats.planning import COST_MARGIN, MARGIN, Needed, more_to_exclude
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
    """Return the flows of one run, or those of two runs under the names that `compare` gives them."""
    if len(runs) == 1:
        return [Side(flow, runs[0], flow) for flow in runs[0].result.flows]
    differ = len({run.run_id for run in runs}) == len(runs)
    return [
        Side(f"{flow} ({run.run_id if differ else run.path})", run, flow) for run in runs for flow in run.result.flows
    ]


@dataclass(frozen=True, eq=False)
class Contrast:
    """Comparison of one flow with another: the excluded losses and the significant differences."""

    flow: str
    other: str
    paired: Mapping[str, PairedMeasure]
    """Primary measures, with `other` as A."""
    verdict_on: Callable[[str, bool], MeasureVerdict]
    """Returns the verdict on a measure by the tests of this pair, or with True by the test over all pairs."""
    measures: Sequence[str]
    """Primary measures and all costs."""

    @cached_property
    def significant(self) -> dict[str, MeasureVerdict]:
        """The significant differences of this pair."""
        verdicts = {name: self.verdict_on(name, False) for name in self.measures}
        return {name: verdict for name, verdict in verdicts.items() if verdict.is_shown}

    @cached_property
    def over_all(self) -> dict[str, VerdictKind]:
        """The verdict on each primary measure by the test over all pairs."""
        return {name: self.verdict_on(name, True).kind for name in self.paired}

    @property
    def qualities(self) -> list[PairedMeasure]:
        return [paired for name, paired in self.paired.items() if is_quality(name)]

    @cached_property
    def open(self) -> dict[str, PairedMeasure]:
        """The qualities in which a loss of `MARGIN` is not excluded."""
        return {each.measure.name: each for each in self.qualities if loss_p_value(each, MARGIN) > ALPHA}

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Upper bound of the mean loss of each open quality, or of every quality if none is open.

        Unknown qualities are left out.
        """
        chosen = [*self.open.values()] or self.qualities
        bounds = {paired: bound_of_all(paired, 1.0, ALPHA) for paired in chosen if len(paired.differences)}
        return {paired.measure.name: paired.max_change[0] if b is None else b for paired, b in bounds.items()}

    @cached_property
    def needed(self) -> dict[str, Needed | None]:
        """Further conversations that exclude `MARGIN` in an open quality if both flows are equally good; None: unknown.

        Qualities without a pair of turns are left out.
        """
        own = {name: paired for name, paired in self.open.items() if len(paired.differences)}
        return {name: more_if_equal(paired, MARGIN, ALPHA) for name, paired in own.items()}

    @property
    def gains(self) -> list[str]:
        """The measures in which the flow is shown better or cheaper."""
        return [name for name, each in self.significant.items() if each.kind == "better"]

    @property
    def wins(self) -> list[str]:
        """Primary qualities in which the flow is shown better."""
        return [name for name in self.gains if is_quality(name)]

    @property
    def losses(self) -> list[str]:
        """Primary qualities in which the flow is shown worse."""
        return [name for name, each in self.significant.items() if each.kind == "worse" and is_quality(name)]

    def passes(self, name: str, alpha: float) -> bool:
        """Return True if a loss in a primary measure is excluded: `MARGIN` in a quality, `COST_MARGIN` in a cost."""
        paired = self.paired[name]
        margin = MARGIN if is_quality(name) else COST_MARGIN * (paired.means[0] or 0.0)
        is_cheaper = not is_quality(name) and self.over_all[name] == "better"
        return is_cheaper or loss_p_value(paired, margin) <= alpha


def contrasts_of(
    tables: Mapping[str, TurnTable],
    primary: Sequence[str],
    stops: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> dict[str, list[Contrast]]:
    """Return each flow against every other one; empty without a primary quality, or if the turns differ.

    `stops` are the declared stops of each flow, by cost. All pairs share the sign flips of one test, which runs when
    the first verdict is needed. Both directions of a pair share its p-values.
    """
    if not any(is_quality(name) for name in primary) or len({tuple(table.keys) for table in tables.values()}) > 1:
        return {}
    costs = [name for name in FEWER if name != LATENCY and all(t.column(name)[1].any() for t in tables.values())]
    names, pairs = [*dict.fromkeys((*primary, *costs))], [*combinations(tables, 2)]
    paired = {
        (flow, other): {name: pair_measure(name, tables[other], tables[flow], stops.get(flow, {})) for name in names}
        for flow, other in permutations(tables, 2)
    }
    # Each pair has its own families, and all pairs have one for the primary measures.
    columns: list[tuple[tuple[str, str], str, object]] = []
    for pair in pairs:
        columns += [(pair, name, (pair, name in primary)) for name in names]
        columns += [(pair, name, None) for name in primary]
    members, families = [paired[pair][name] for pair, name, _ in columns], [family for *_, family in columns]

    @cache
    def tests() -> dict[tuple[tuple[str, str], str, object], MeasureOutcome]:
        outcomes = run_family_test(members, ALPHA, two_sided=True, families=families)
        return dict(zip(columns, outcomes, strict=True))

    def contrast(flow: str, other: str) -> Contrast:
        pair, own = (flow, other) if (flow, other) in pairs else (other, flow), paired[flow, other]

        def verdict_on(name: str, over_all: bool) -> MeasureVerdict:
            outcome = tests()[pair, name, None if over_all else (pair, name in primary)]
            return MeasureVerdict(flow=flow, paired=own[name], **outcome._asdict(), alpha=ALPHA)

        return Contrast(flow, other, {name: own[name] for name in primary}, verdict_on, names)

    return {flow: [contrast(flow, other) for other in tables if other != flow] for flow in tables}


def dominated_flows(contrasts: Mapping[str, Sequence[Contrast]]) -> Iterator[str]:
    """Yield a line for each dominated flow: another flow is better in one measure and passes in all others.

    A test over all pairs and primary measures shows the first part. The second part excludes a loss as `Ship X` does.
    All pairs share its level, because each pair may give a line.
    """
    alpha = 2 * ALPHA / max(1, len(contrasts) * (len(contrasts) - 1))
    for flow, own in contrasts.items():
        for contrast in own:
            worse = [name for name, kind in contrast.over_all.items() if kind == "worse"]
            rest = [name for name in contrast.over_all if name not in worse]
            back = next(each for each in contrasts[contrast.other] if each.other == flow)
            if worse and all(back.passes(name, alpha) for name in rest):
                passes = f", and {back.flow} passes in {', '.join(rest)}" if rest else ""
                yield f"{flow} is dominated by {back.flow}: worse in {', '.join(worse)}{passes}"
                break


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
