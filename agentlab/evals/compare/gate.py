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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import read_baseline
from agentlab.evals.compare.measures import (
    COSTS,
    Key,
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
    POWER,
    constant_p,
    holm,
    permutation_floor,
    permutation_p,
    smallest_visible_difference,
    upper_bound,
)
from agentlab.evals.results.graders import check_comparable, identity
from agentlab.evals.results.run import Run

QUALITY_MARGIN = 0.05
GATED_COSTS = dict.fromkeys(("failed", "llm_calls", "input_tokens", "output_tokens", "cost_usd"), 0.05)
GATED_COSTS["latency_s"] = 0.20
"""Costs that are gated unasked, and their margins, in shares of the baseline's mean."""

Result = Literal["pass", "regression", "inconclusive"]
EXIT_CODES: dict[Result, int] = {"pass": 0, "regression": 2, "inconclusive": 3}


class Judged:
    """One measure of one flow, and the verdict on it; losses, margin and bound are in the units of the measure."""

    family = 0
    """The number of tests Holm's correction is over."""
    p_holm: float | None = None
    """None where the measure is not in the family."""

    def __init__(self, flow: str, paired: Paired, margins: Mapping[str, float], alpha: float) -> None:
        self.flow, self.measure, self.alpha = flow, paired.measure, alpha
        self.n = len(paired.keys)
        self.clusters = len(set(paired.clusters))
        self.baseline, self.run = mean(paired.a) or 0.0, mean(paired.b)
        name = self.measure.name
        share = margins.get(name, GATED_COSTS.get(name, QUALITY_MARGIN))
        self.margin = share * self.baseline if self.measure in COSTS else share
        worse = -1.0 if self.measure.better == "higher" else 1.0
        self.losses = [worse * difference for difference in paired.differences]
        """A number a turn; empty where one is not known."""
        self.loss = mean(self.losses)
        self.conversations = paired.clusters
        self.constant = len(self.losses) > 1 and len(set(self.losses)) == 1
        self.p, self.floor, self.bound = self._tested()

    def _tested(self) -> tuple[float | None, float, float | None]:
        """The p-value, the least it could have been with these absolute differences, and the bound of the loss.

        The loss is not larger than the bound, at level 1 - alpha; None where nothing bounds it.
        """
        if not self.losses:
            return None, 1.0, None
        if not any(self.losses):
            return 1.0, 1.0, 0.0
        p = permutation_p(self.losses, self.conversations, "greater")
        floor = permutation_floor(self.losses, self.conversations)
        if not self.constant:
            return p, floor, upper_bound(self.losses, self.conversations, self.alpha)
        certain = constant_p(self.clusters)
        return min(p, certain) if self.losses[0] > 0 else 1.0, min(floor, certain), self.losses[0]

    @property
    def verdict(self) -> Result:
        # A rounding error is not a loss.
        if self.bound is not None and self.bound <= self.margin + 1e-12 * max(1.0, self.margin):
            return "pass"
        return "regression" if self.p_holm is not None and self.p_holm < self.alpha else "inconclusive"

    @property
    def visible(self) -> float | None:
        """The smallest true loss this gate finds in 80 % of such runs; None where it cannot be known or none could."""
        if len(set(self.losses)) < 2 or self._least_p > self._needed_p or self.bound is None:
            return None
        found = smallest_visible_difference(self.losses, self.conversations, self._needed_p)
        # Below this, the bound would lie within the margin too often to be called a regression.
        beyond = upper_bound(self.losses, self.conversations, 1 - POWER)
        assert found is not None and beyond is not None
        return max(found, self.margin + beyond - self.bound)

    @property
    def why(self) -> str:
        if self.loss is None:
            return "unknown in this run, known in the baseline"
        if not any(self.losses):
            return "no turn differs"
        moved = f"{'worse' if self.loss > 0 else 'better'} by {brief(abs(self.loss))}"
        if self.constant:
            moved += " on every turn"
        limit = f"the margin is {brief(self.margin)}"
        if self.verdict == "pass":
            return f"{moved}, at most {brief(self.bound, '+')} worse; {limit}"
        if self.verdict == "regression":
            return f"{moved}, p = {self.p_holm:.2g} after Holm over {self.family} tests; {limit}"
        bound = "no bound on one conversation" if self.bound is None else f"up to {brief(self.bound, '+')} is possible"
        text = f"{moved}, {bound}; {limit}"
        if self._least_p <= self._needed_p:
            return text
        return (
            f"{text}; {self.clusters} conversations can never show a regression here, unless it is the same on every"
            f" turn: p cannot go below 2^-{self.clusters} = {self._least_p:.2g}, and {max(1, self.family)} tests need"
            f" {self._needed_p:.2g}"
        )

    @property
    def _least_p(self) -> float:
        return 2.0**-self.clusters

    @property
    def _needed_p(self) -> float:
        """Of the first of Holm's tests."""
        return self.alpha / max(1, self.family)


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
    header, held = read_baseline(Path(baseline))
    run.check_complete()
    mine = identity(run.folder.header, str(run.path))
    # A grader that is new has no say over scores that are in the baseline.
    mine["graders"] = {name: sha for name, sha in mine["graders"].items() if name in header.graders}
    check_comparable({"name": str(baseline), **asdict(header)}, mine)
    flows = measured(run)
    for label, rows in held.items():
        if label not in flows:
            raise RunError(f"{run.path}: {plugins.unknown('flow of this run', label, flows)}; the baseline has it")
        for key in sorted({*rows} - {*flows[label]}):
            raise RunError(f"{run.path}: {turn_name(key)} of {label} is in the baseline and not in the run")
    notes = []
    if run.result.model != header.model:
        notes.append(f"the baseline was made with {header.model}, the run with {run.result.model}")
    if new := [label for label in flows if label not in held]:
        notes.append(f"not in the baseline, so not gated: {', '.join(new)}")
    if more := sum(len({*flows[label]} - {*rows}) for label, rows in held.items()):
        notes.append(f"{more} turns of the run are not in the baseline, so not gated")
    judged, said = judge(held, flows, margins or {}, alpha)
    return Verdict(run_id=run.run_id, baseline_id=header.run_id, alpha=alpha, judged=judged, notes=(*notes, *said))


def judge(
    baseline: Mapping[str, Mapping[Key, Values]],
    run: Mapping[str, Mapping[Key, Values]],
    margins: Mapping[str, float],
    alpha: float,
) -> tuple[tuple[Judged, ...], tuple[str, ...]]:
    """The verdicts and what else is to be said, from the turns of each flow of the baseline."""
    _check_arguments(baseline, margins, alpha)
    judged, unknown, notes = [], [], []
    for flow, rows in baseline.items():
        for name in in_order(name for row in rows.values() for name in row):
            asked = name in margins or name in GATED_COSTS or measure(name) not in COSTS
            if not asked or math.isinf(margins.get(name, 0.0)):
                continue
            paired = pair_up(name, rows, run[flow])
            if mean(paired.a) is None:
                unknown.append(f"{name} of {flow}")
            else:
                judged.append(Judged(flow, paired, margins, alpha))
    family = [j for j in judged if j.floor <= alpha]
    for j, p_holm in zip(family, holm([j.p for j in family if j.p is not None]), strict=True):
        j.p_holm = p_holm
    for j in judged:
        j.family = len(family)
    equal = sum(j.loss is not None and not any(j.losses) for j in judged)
    silent = sum(j.loss is not None for j in judged) - len(family) - equal
    if unknown:
        notes.append(f"unknown in the baseline, so not gated: {', '.join(unknown)}")
    if equal:
        notes.append(f"{equal} measures are equal on every turn and left out of Holm's correction")
    if silent:
        notes.append(f"{silent} measures differ in too few conversations to be rejected, left out of the correction")
    return tuple(judged), tuple(notes)


def _check_arguments(baseline: Mapping[str, Mapping[Key, Values]], margins: Mapping[str, float], alpha: float) -> None:
    known = {name for rows in baseline.values() for row in rows.values() for name in row}
    for name, margin in margins.items():
        if name not in known:
            raise RunError(plugins.unknown("measure of the baseline", name, known))
        if math.isnan(margin) or margin < 0:
            raise RunError(f"the margin of {name} is {margin}; it must be 0 or more")
    if not 0 < alpha < 0.5:
        raise RunError(f"alpha is {alpha}; it must lie between 0 and .5")
