"""Has a flow become worse than its baseline? Three answers: pass, regression, or too little data to tell.

    write_baseline(run, "evals/baselines/laws.jsonl")
    verdict = gate(another_run, "evals/baselines/laws.jsonl", margins={"answer_f1": 0.1})

The loss of a measure is its mean difference in the worse direction, turn by turn on the turns of the baseline.

    pass          the one-sided upper bound of the loss (level 1 - alpha, Student's t) is within the margin, or no turn
                  differs. All measures must pass, so passing needs no correction (an intersection-union test).
    regression    not so, and the one-sided permutation test (signs of whole conversations) rejects "no loss" at alpha
                  after Holm's correction over the family.
    inconclusive  neither.

The family: every gated measure of every flow that could be rejected at all. Where only k conversations differ, p is at
least 2**-k, whatever the signs; with 2**-k > alpha the measure cannot raise an alarm and must not make the others
pay (Tarone 1990). That takes out all measures that are equal on every turn, as on replay.

A difference that is the same on every turn has no visible noise: its bound is the difference itself, and its p-value
`statistics.constant_p`, which reaches further down than signs do. So one more call on every turn is a regression from
four conversations on. On one conversation nothing can be shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import Baseline, read_baseline
from agentlab.evals.compare.measures import (
    COSTS,
    Key,
    Measure,
    Paired,
    Values,
    brief,
    in_order,
    mean,
    measure,
    measured,
    pair_up,
    turn_name,
)
from agentlab.evals.compare.statistics import (
    constant_p,
    holm,
    permutation_floor,
    permutation_p,
    smallest_visible_difference,
    upper_bound,
)
from agentlab.evals.results.graders import check_comparable, identity
from agentlab.evals.results.run import Run

GATED_COSTS = ("failed", "llm_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s")
QUALITY_MARGIN = 0.05
COST_MARGIN = 0.05
LATENCY_MARGIN = 0.20
POWER = 0.8

Result = Literal["pass", "regression", "inconclusive"]
EXIT_CODES: dict[Result, int] = {"pass": 0, "regression": 2, "inconclusive": 3}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The verdict on one measure of one flow; losses, margin and bound are in the units of the measure."""

    flow: str
    measure: Measure
    n: int
    clusters: int
    baseline: float
    run: float | None
    margin: float
    verdict: Result
    why: str
    loss: float | None = None
    bound: float | None = None
    """The loss is not larger than this, at level 1 - alpha; None where nothing bounds it."""
    p: float | None = None
    p_holm: float | None = None
    """None where the measure is not in the family."""
    visible: float | None = None
    """The smallest true loss this gate finds in 80 % of such runs; None where it cannot be known or none could be."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    run_id: str
    baseline_id: str
    alpha: float
    judged: tuple[Judged, ...]
    notes: tuple[str, ...]

    @property
    def result(self) -> Result:
        found = {judged.verdict for judged in self.judged}
        return "regression" if "regression" in found else "inconclusive" if "inconclusive" in found else "pass"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.result]

    def __str__(self) -> str:
        counts = {kind: sum(j.verdict == kind for j in self.judged) for kind in EXIT_CODES}
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        return f"{self.result}: {self.run_id} against {self.baseline_id} ({shown})"


def gate(run: Run, baseline: str | Path, *, margins: Mapping[str, float] | None = None, alpha: float = 0.05) -> Verdict:
    """Hold a run against a baseline file.

    `margins` by measure: absolute for quality (default .05), a share of the baseline's mean for costs (.05, latency
    .20). Naming `tool_calls` or `embedding_calls` gates them too; infinity leaves a measure out. Raises RunError where
    a flow or a turn of the baseline is missing in the run, data or graders are others, the run is not complete, or the
    baseline cannot be read.
    """
    held = read_baseline(Path(baseline))
    run.check_complete()
    mine = identity(run.folder.header)
    if mine["graders"] is not None:
        # A grader that is new has no say over scores that are in the baseline.
        mine["graders"] = {name: sha for name, sha in mine["graders"].items() if name in held.header["graders"]}
    check_comparable(held.header, mine, [str(baseline), str(run.path)])
    flows = measured(run)
    for label, rows in held.flows.items():
        if label not in flows:
            raise RunError(f"{run.path}: {plugins.unknown('flow of this run', label, flows)}; the baseline has it")
        for key in sorted({*rows} - {*flows[label]}):
            raise RunError(f"{run.path}: {turn_name(key)} of {label} is in the baseline and not in the run")
    notes = list(_differences(run, held, flows))
    judged, more = judge(held.flows, flows, margins or {}, alpha)
    return Verdict(
        run_id=run.run_id,
        baseline_id=str(held.header["run_id"]),
        alpha=alpha,
        judged=judged,
        notes=(*notes, *more),
    )


def _differences(run: Run, held: Baseline, flows: Mapping[str, Mapping[Key, Values]]) -> Iterator[str]:
    if run.result.model != held.header["model"]:
        yield f"the baseline was made with {held.header['model']}, the run with {run.summary['model']}"
    new = [label for label in flows if label not in held.flows]
    if new:
        yield f"not in the baseline, so not gated: {', '.join(new)}"
    more = sum(len({*flows[label]} - {*rows}) for label, rows in held.flows.items())
    if more:
        yield f"{more} turns of the run are not in the baseline, so not gated"


def judge(
    baseline: Mapping[str, Mapping[Key, Values]],
    run: Mapping[str, Mapping[Key, Values]],
    margins: Mapping[str, float],
    alpha: float,
) -> tuple[tuple[Judged, ...], tuple[str, ...]]:
    """The verdicts and what else is to be said, from the turns of each flow of the baseline."""
    _check_arguments(baseline, margins, alpha)
    compared, notes = _gated(baseline, run, margins)
    tests = [_Test(flow, paired, margins, alpha) for flow, paired in compared]
    family = [test for test in tests if test.floor <= alpha]
    adjusted = dict(zip(map(id, family), holm([test.p for test in family]), strict=True))
    equal = sum(test.known and not any(test.losses) for test in tests)
    silent = sum(test.known for test in tests) - len(family) - equal
    if equal:
        notes.append(f"{equal} measures are equal on every turn and left out of Holm's correction")
    if silent:
        notes.append(f"{silent} measures differ in too few conversations to be rejected, left out of the correction")
    return tuple(test.judged(adjusted.get(id(test)), len(family)) for test in tests), tuple(notes)


def _check_arguments(baseline: Mapping[str, Mapping[Key, Values]], margins: Mapping[str, float], alpha: float) -> None:
    known = {name for rows in baseline.values() for row in rows.values() for name in row}
    for name, margin in margins.items():
        if name not in known:
            raise RunError(plugins.unknown("measure of the baseline", name, known))
        if math.isnan(margin) or margin < 0:
            raise RunError(f"the margin of {name} is {margin}; it must be 0 or more")
    if not 0 < alpha < 0.5:
        raise RunError(f"alpha is {alpha}; it must lie between 0 and .5")


def _gated(
    baseline: Mapping[str, Mapping[Key, Values]], run: Mapping[str, Mapping[Key, Values]], margins: Mapping[str, float]
) -> tuple[list[tuple[str, Paired]], list[str]]:
    found, unknown = [], []
    for flow, rows in baseline.items():
        for name in in_order(name for row in rows.values() for name in row):
            asked = name in margins or name in GATED_COSTS or measure(name) not in COSTS
            if not asked or math.isinf(margins.get(name, 0.0)):
                continue
            paired = pair_up(name, rows, run[flow])
            if mean(paired.a) is None:
                unknown.append(f"{name} of {flow}")
            else:
                found.append((flow, paired))
    return found, [f"unknown in the baseline, so not gated: {', '.join(unknown)}"] if unknown else []


class _Test:
    """One measure of one flow: its loss, bound and p-value, before the family is known."""

    def __init__(self, flow: str, paired: Paired, margins: Mapping[str, float], alpha: float) -> None:
        self.flow, self.paired, self.alpha = flow, paired, alpha
        self.measure = paired.measure
        self.baseline = mean(paired.a) or 0.0
        share = margins.get(self.measure.name, _default_margin(self.measure))
        self.margin = share * self.baseline if self.measure in COSTS else share
        worse = -1.0 if self.measure.better == "higher" else 1.0
        self.losses = [worse * difference for difference in paired.differences]
        self.clusters = paired.clusters
        self.known = bool(self.losses)
        self.conversations = len(set(self.clusters))
        self.constant = len(self.losses) > 1 and len(set(self.losses)) == 1
        self.p, self.floor, self.bound = self._tested() if self.known else (1.0, 1.0, None)

    def _tested(self) -> tuple[float, float, float | None]:
        """The p-value, the least it could have been with these absolute differences, and the bound of the loss."""
        if not any(self.losses):
            return 1.0, 1.0, 0.0
        p = permutation_p(self.losses, self.clusters, "greater")
        floor = permutation_floor(self.losses, self.clusters)
        if not self.constant:
            return p, floor, upper_bound(self.losses, self.clusters, self.alpha)
        certain = constant_p(self.conversations)
        return min(p, certain) if self.losses[0] > 0 else 1.0, min(floor, certain), self.losses[0]

    def judged(self, p_holm: float | None, family: int) -> Judged:
        """The verdict, given the adjusted p-value (None outside the family) and the size of the family."""
        visible = self._visible(family)
        # A rounding error is not a loss.
        within = self.bound is not None and self.bound <= self.margin + 1e-12 * max(1.0, self.margin)
        verdict: Result = "pass" if within else "inconclusive"
        if not within and p_holm is not None and p_holm < self.alpha:
            verdict = "regression"
        return Judged(
            flow=self.flow,
            measure=self.measure,
            n=len(self.paired.keys),
            clusters=self.conversations,
            baseline=self.baseline,
            run=mean(self.paired.b),
            margin=self.margin,
            verdict=verdict,
            why=self._why(verdict, p_holm, family),
            loss=mean(self.losses),
            bound=self.bound,
            p=self.p if self.known else None,
            p_holm=p_holm,
            visible=visible,
        )

    def _visible(self, family: int) -> float | None:
        if len(set(self.losses)) < 2 or self._never(family) or self.bound is None:
            return None
        found = smallest_visible_difference(
            self.losses, self.clusters, alpha=self.alpha, two_sided=False, tests=max(1, family), power=POWER
        )
        # Below this, the bound would lie within the margin too often to be called a regression.
        beyond = upper_bound(self.losses, self.clusters, 1 - POWER)
        assert found is not None and beyond is not None
        return max(found, self.margin + beyond - self.bound)

    def _never(self, family: int) -> bool:
        return 2.0**-self.conversations > self.alpha / max(1, family)

    def _why(self, verdict: Result, p_holm: float | None, family: int) -> str:
        if not self.known:
            return "unknown in this run, known in the baseline"
        if not any(self.losses):
            return "no turn differs"
        loss = mean(self.losses) or 0.0
        moved = f"{'worse' if loss > 0 else 'better'} by {brief(abs(loss))}"
        if self.constant:
            moved += " on every turn"
        limit = f"the margin is {brief(self.margin)}"
        if verdict == "pass":
            return f"{moved}, at most {brief(self.bound, '+')} worse; {limit}"
        if verdict == "regression":
            return f"{moved}, p = {p_holm:.2g} after Holm over {family} tests; {limit}"
        bound = "no bound on one conversation" if self.bound is None else f"up to {brief(self.bound, '+')} is possible"
        text = f"{moved}, {bound}; {limit}"
        if not self._never(family):
            return text
        return (
            f"{text}; {self.conversations} conversations can never show a regression here, unless it is the same on"
            f" every turn: p cannot go below 2^-{self.conversations} = {2.0**-self.conversations:.2g}, and"
            f" {max(1, family)} tests need {self.alpha / max(1, family):.2g}"
        )


def _default_margin(what: Measure) -> float:
    if what not in COSTS:
        return QUALITY_MARGIN
    return LATENCY_MARGIN if what.name == "latency_s" else COST_MARGIN
