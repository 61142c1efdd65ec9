"""Recommend a flow in one sentence, from a comparison.

`Ship X` means, against every other flow:

* In every primary quality, a test at level .95 excludes a mean loss of `MARGIN` or more (`margin_p_value`). The test
  also runs if X is better or all turns are equal. It runs per turn and, if lengths differ, per conversation.
* X is significantly better in a primary measure, or cheaper.

X has to pass each of these tests, so no test is corrected for the others (intersection-union test; Berger,
Multiparameter hypothesis testing and acceptance sampling, 1982). Everything else is undecided, in numbers.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from agentlab.core.errors import RunError
from agentlab.evals.compare.family import run_family_test
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, pair_measure
from agentlab.evals.compare.pairs import ALPHA, Comparison, FlowPair, compare
from agentlab.evals.stats.planning import conversations_for_power, conversations_if_equal
from agentlab.evals.stats.statistics import loss_bound, margin_p_value
from agentlab.evals.store.judges import notes_on_judges
from agentlab.evals.store.measures import COSTS, LATENCY, format_number, measure
from agentlab.evals.store.run import StoredRun

MARGIN = 0.10
"""Loss of quality that a recommendation excludes, and smallest difference that matters; per turn or conversation."""
WEAK = 0.9
"""A mean above this is no weak point."""
FEWER = {"input_tokens": "fewer input tokens", "llm_calls": "fewer calls", "cost_usd": "cheaper", "latency_s": "faster"}
WEAKNESS = {
    "answered": "declines {:.0%} of what it could answer",
    "refusal_accuracy": "answers {:.0%} of what it should decline",
    "failed": "fails on {:.0%} of the turns",
}
Means = Mapping[str, Mapping[str, float | None]]
"""Flow label -> measure -> mean; None is unknown."""


class Verdict(NamedTuple):
    kind: str
    """`ship`, `undecided` or `none`."""
    sentence: str
    notes: tuple[str, ...]
    """Evidence and its limits, a line each."""
    command: str
    """Command to run next."""
    flow: str | None = None
    """Flow to ship."""


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
        self.qualities = [self._pair(name) for name in decide if _is_quality(name)]

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

    @property
    def gains(self) -> list[str]:
        """The measures in which the flow is shown better or cheaper."""
        return [name for name, loss in self.shown.items() if loss < 0]

    @property
    def wins(self) -> list[str]:
        """The qualities that decide in which the flow is shown better."""
        return [name for name in self.gains if _is_quality(name)]

    @property
    def losses(self) -> list[str]:
        """The qualities that decide in which the flow is shown worse."""
        return [name for name, loss in self.shown.items() if loss > 0 and _is_quality(name)]


def _is_quality(name: str) -> bool:
    return measure(name) not in COSTS or name == "failed"


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
    if not any(_is_quality(name) for name in decide) or len({tuple(table.keys) for table in tables.values()}) > 1:
        return {}
    return {flow: [Contrast(flow, other, tables, decide) for other in tables if other != flow] for flow in tables}


def winners(contrasts: Mapping[str, Sequence[Contrast]]) -> list[str]:
    """Return the flows that may be shipped by the rule of this module; more than one is a trade."""
    passing = [flow for flow, own in contrasts.items() if not any(contrast.open for contrast in own)]
    return [flow for flow in passing if all(contrast.gains for contrast in contrasts[flow])]


def recommend(*runs: StoredRun) -> tuple[Verdict, Comparison | None]:
    """Return the verdict on one run or two, and the comparison that it rests on; None if nothing can be compared.

    Raises RunError where one has not ended.
    """
    sides = sides_of(runs)
    folders = " ".join(shlex.quote(str(run.path)) for run in runs)
    if nothing := _nothing_to_decide(runs, [side.name for side in sides], folders):
        return nothing, None
    try:
        comparison = compare(runs[0], runs[1] if len(runs) > 1 else None)
    except RunError as problem:
        return Verdict("none", "No verdict: the flows cannot be compared.", (str(problem),), _again(runs[0])), None
    pairs = comparison.pairs
    notes = [str(comparison.best)] if comparison.best else []
    notes += [*map(str, pairs), *_limits(pairs), *chain.from_iterable(map(notes_on_judges, runs))]
    command = f"agentlab compare {folders}"
    means = {side.name: side.run.means[side.flow] for side in sides}
    contrasts = contrasts_of(comparison.tables, comparison.primary)
    best = winners(contrasts)
    if len(best) == 1:
        sentence = f"Ship {best[0]}: {_reasons(contrasts[best[0]], means)}{_weakness(best[0], means, comparison)}."
        return Verdict("ship", sentence, tuple(notes), command, best[0]), comparison
    sentence = _trade(best, contrasts, means) if best else _undecided(contrasts, means, comparison)
    return Verdict("undecided", sentence, tuple(notes), command), comparison


def _nothing_to_decide(runs: Sequence[StoredRun], names: Sequence[str], folders: str) -> Verdict | None:
    """Return the verdict of runs without a choice: no reply, one flow, or calls without a recording; else None."""
    for run in runs:
        if run.all_turns_failed:
            errors = [row.error for row in run.map_turns() if row.error is not None]
            if not errors:
                return Verdict("none", "No verdict: no turn was played.", (), "")
            return Verdict("none", "No verdict: every turn of every flow failed.", (errors[0],), _again(run))
        if run.result.recordings and run.result.recordings.missing:
            missing = f"No verdict: {run.result.recordings.missing} calls of this replay were not recorded."
            return Verdict("none", missing, ("The turns concerned failed; --mode auto records what is missing.",), "")
    if len(names) < 2:
        alone = f"One flow, nothing to choose from: {names[0]}."
        return Verdict("none", alone, (), f"agentlab report {folders} ANOTHER_RUN -o run.html")
    return None


def _again(run: StoredRun) -> str:
    return f"agentlab show {shlex.quote(str(run.path))} --trace"


def _gains(contrasts: Sequence[Contrast], means: Means) -> list[str]:
    """Return the qualities in which a flow is shown better than some and worse than none, and the costs it saves."""
    lost = set(chain.from_iterable(contrast.losses for contrast in contrasts))
    won = dict.fromkeys(name for contrast in contrasts for name in contrast.wins)
    better = [name for name in won if name not in lost]
    return [*([f"better in {', '.join(better)}"] if better else []), *_savings(contrasts, means)]


def _reasons(contrasts: Sequence[Contrast], means: Means) -> str:
    bounds: dict[str, float] = {}
    for paired in chain.from_iterable(contrast.qualities for contrast in contrasts):
        bounds[paired.measure.name] = max(_bound(paired) or 0.0, bounds.get(paired.measure.name, 0.0))
    most = [f"{format_number(bound)} in {name}" for name, bound in bounds.items() if bound > 0]
    conversations = _conversations(min(paired.conversations for paired in contrasts[0].qualities))
    excluded = f"a loss above {' and '.join(most)} is excluded ({conversations}, error .05)"
    return ", ".join([*_gains(contrasts, means), *([excluded] if most else [])])


def _trade(flows: Sequence[str], contrasts: Mapping[str, Sequence[Contrast]], means: Means) -> str:
    parts = []
    for flow in flows:
        among = [contrast for contrast in contrasts[flow] if contrast.other in flows]
        parts.append(f"{flow} is {', '.join(_gains(among, means)) or 'cheaper or better'}")
    return f"Undecided, a trade: {'; '.join(parts)}; each excludes a loss of {MARGIN:.2f}."


def _contenders(contrasts: Mapping[str, Sequence[Contrast]]) -> Mapping[str, Sequence[Contrast]]:
    """Leave out each flow that is shown worse than another one, which excludes a loss against it."""
    beaten = {each.other for own in contrasts.values() for each in own if each.wins and not each.open}
    left = {flow: [each for each in own if each.other not in beaten] for flow, own in contrasts.items()}
    return {flow: own for flow, own in left.items() if flow not in beaten and own} or contrasts


def _undecided(contrasts: Mapping[str, Sequence[Contrast]], means: Means, comparison: Comparison) -> str:
    pairs, contrasts = comparison.pairs, _contenders(contrasts)
    names = ", ".join(contrasts or dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    kinds = {d.kind for d in _decisive(pairs)}
    if kinds <= {"unknown"}:
        return f"Undecided between {names}: a primary measure is unknown for one of them."
    if kinds == {"unchanged"}:
        return f"No difference between {names}: the primary measures are equal on every turn."
    ahead = {flow: own for flow, own in contrasts.items() if all(contrast.gains for contrast in own)}
    if not ahead:
        return f"Undecided between {names}: {_how_many_more(comparison, pairs)}."
    flow, own = min(ahead.items(), key=lambda each: sum(len(contrast.open) for contrast in each[1]))
    gains = ", ".join(_gains(own, means)) or "cheaper or better than each other flow"
    if lost := [contrast for contrast in own if contrast.losses]:
        worst = f"worse in {', '.join(lost[0].losses)} than {lost[0].other}"
        return f"Undecided, a trade: {flow} is {gains}, and {worst}."
    worst_of = max(own, key=lambda each: max((_bound(paired) or 0.0 for paired in each.open), default=0.0))
    open_ = [f"{format_number(_bound(paired))} in {paired.measure.name}" for paired in worst_of.open]
    excluded = f"a loss of up to {' and '.join(open_)} against {worst_of.other} is not excluded"
    return f"Undecided: {flow} is {gains}; {excluded}{_conversations_needed(worst_of)}."


def _conversations_needed(contrast: Contrast) -> str:
    """Say how many more conversations exclude a loss of `MARGIN`, if the two flows are equally good."""
    low = high = 0
    for paired in contrast.open:
        for sums, counts in _estimands(paired):
            needed = conversations_if_equal(sums, counts, MARGIN, ALPHA)
            if needed is None:
                return ""
            low, high = max(low, needed[0] - len(counts)), max(high, needed[1] - len(counts))
    if high < 1:
        return f"; two flows that are equally good would have excluded {MARGIN:.2f} (4 times in 5)"
    count = f"up to {high}" if low < 1 else str(high) if low == high else f"{low} to {high}"
    return f"; if the two are equally good, {count} more conversations exclude {MARGIN:.2f} (4 times in 5)"


def _decisive(pairs: Sequence[FlowPair], *, quality: bool = False) -> list[Judgement]:
    primary = [d for pair in pairs for d in pair.differences if d.primary]
    return [d for d in primary if not quality or d.measure not in COSTS]


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"


def _how_many_more(comparison: Comparison, pairs: Sequence[FlowPair]) -> str:
    """Return the number of conversations, and the number that a difference in quality needs."""
    conversations = max((d.conversations for pair in pairs for d in pair.differences), default=0)
    needed = (
        conversations_for_power(d.paired.sums, d.paired.counts, ALPHA / max(1, comparison.family) / 2, MARGIN)
        for d in _decisive(pairs, quality=True)
    )
    most = max(filter(None, needed), default=0)
    # With n equal signs, the strongest evidence, the two-sided p is 2 / 2**n, also by maxT of a family.
    least = math.ceil(math.log2(2 / ALPHA))
    note = _conversations(conversations)
    if conversations < least:
        # A difference that is equal on every turn has another test: `family.constant_shift_p_value`.
        shown = any(d.is_shown for pair in comparison.pairs for d in pair.differences)
        what = "a difference that varies from turn to turn" if shown else "anything"
        note += f", too few to show {what} ({least} are the least)"
    if most > max(least, conversations):
        note += f"; to see a difference of {MARGIN:.2f} you need about {most}"
    elif most and conversations >= least:
        note += f"; a difference of {MARGIN:.2f} would have been seen"
    return note


def _savings(contrasts: Sequence[Contrast], means: Means) -> list[str]:
    """Return the costs that the flow is shown to save against every other one, each with the least that it saves."""
    flow, savings = contrasts[0].flow, []
    for name, words in FEWER.items():
        mine = means[flow].get(name)
        theirs = [means[contrast.other].get(name) for contrast in contrasts]
        if mine and all(theirs) and all(name in contrast.gains for contrast in contrasts):
            least = min(other / mine for other in theirs if other)
            savings.append(f"{least:.1f} x {words}" if name == LATENCY else f"{1 - 1 / least:.0%} {words}")
    return savings


def _weakness(best: str, means: Means, comparison: Comparison) -> str:
    """Return the quality furthest from its best value: one of `WEAKNESS`, otherwise a primary one."""
    own = {name: value for name, value in means[best].items() if value is not None}
    lacks = {name: value if name == "failed" else 1 - value for name, value in own.items() if name in WEAKNESS}
    if lacks and max(lacks.values()) > 1 - WEAK:
        worst = max(lacks, key=lacks.__getitem__)
        return f"; weak point: {WEAKNESS[worst].format(lacks[worst])}"
    decide = [name for name in comparison.primary if name in own and measure(name).better == "higher"]
    worst = min(decide, key=own.__getitem__, default="")
    return f"; weak point: {worst} {own[worst]:.2f}" if worst and own[worst] < WEAK else ""


def _limits(pairs: Sequence[FlowPair]) -> list[str]:
    """Return a line on the differences in quality that are too small to detect; undetected is not equal."""
    undecided: dict[str, list[Judgement]] = {}
    for d in _decisive(pairs, quality=True):
        if d.changed and d.kind == "undecided":
            undecided.setdefault(d.measure.name, []).append(d)
    parts = []
    for name, judgements in undecided.items():
        visible = [d.visible for d in judgements if d.visible is not None]
        size = f"of any size ({_conversations(judgements[0].conversations)})"
        parts.append(f"in {name} {f'under {format_number(max(visible))}' if len(visible) == len(judgements) else size}")
    return [f"undetected differences may exist: {', '.join(parts)}"] if parts else []
