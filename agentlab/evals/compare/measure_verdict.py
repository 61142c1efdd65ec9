"""Verdict on one measure, B against A, with a margin or without.

    unknown    a value of one side is unknown
    unchanged  every turn is equal: a statement about these turns
    better, worse
               the sign-flip test of the whole family rejects at alpha; with a margin it tests for a loss only, which
               is beyond the margin or of undecided size. `claim` shows if this is true of the mean, too
    pass       with a margin: a mean loss beyond it is excluded at level 1 - alpha, rare breaks included
    undecided  none of these; `conversations_needed` exclude a loss if the sides are equally good

The bounds are those of `statistics.loss_bound`, which assumes no distribution. A metric between 0 and 1 cannot pass
with fewer than ln(alpha) / ln(1 - margin) conversations, 59 at a margin of .05 and 29 at .10. Fewer conversations could
miss a break of one in twenty. A cost passes only below a declared stop (`PairedMeasure.max_change`).
The sequential gate has its own bounds, which hold at all looks together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.stats.intervals import ROUGH, mean_interval, mean_p_value
from agentlab.evals.stats.planning import (
    MARGIN,
    POWER,
    Needed,
    detectable_loss,
    more_to_exclude,
    standard_error,
)
from agentlab.evals.stats.statistics import NORMAL, Interval, cohens_dz, loss_bound, margin_p_value
from agentlab.evals.store.measures import COSTS, Measure, format_number

ESTIMAND = (
    "means are over turns, 95 % intervals over conversations; if lengths differ a loss is excluded per turn and per"
    " conversation"
)
MIN_FOR_MEAN_SCORE = 30
"""Conversations of which at least one collapses in .95 of runs, if one in ten does (.9 ** 30 = .04)."""
Claim = Literal["", "more often", "on average", "on average, whatever was not seen"]
VerdictKind = Literal["unknown", "unchanged", "better", "worse", "pass", "undecided"]
IN_A_PAIR = {"better": "B better", "worse": "B worse", "undecided": "no difference shown"}
"""Kind -> its name in a comparison without margins, where the names differ."""


def bound_of_all(paired: PairedMeasure, sign: float, alpha: float) -> float | None:
    """Return the upper bound of the mean loss, or with sign -1 the lower one, at level 1 - alpha; None if none."""
    if paired.corrected is not None:
        return paired.corrected.bound(1 - alpha if sign > 0 else alpha)
    reach = paired.max_change[sign < 0]
    if not len(paired.losses) or math.isinf(reach):
        return None
    bounds = [loss_bound(sums, counts, reach, alpha, longest) for sums, counts, longest in paired.estimands(sign)]
    return None if None in bounds else sign * max(bound for bound in bounds if bound is not None)


def loss_p_value(paired: PairedMeasure, margin: float) -> float:
    """Return the p-value of "a mean loss of `margin` or more", per turn or per conversation; 1 if it is unknown."""
    if paired.corrected is not None:
        return 1 - paired.corrected.p_value(margin)
    reach = paired.max_change[0] if len(paired.losses) else math.inf
    if paired.conversations < 2 or math.isinf(reach):
        return 1.0
    return max(margin_p_value(sums, counts, reach, margin, longest) for sums, counts, longest in paired.estimands())


def more_if_equal(paired: PairedMeasure, margin: float, alpha: float) -> Needed | None:
    """Return how many more conversations exclude a mean loss of `margin`, if both sides are equally good."""
    if paired.corrected is not None:
        return None  # more labels help, too
    reach = paired.max_change[0]
    needed = [more_to_exclude(s, c, margin, reach, alpha, longest) for s, c, longest in paired.estimands()]
    if None in needed:
        return None
    return Needed(*map(max, zip(*(each for each in needed if each), strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasureVerdict:
    """Verdict on one measure of one flow; losses, margin and bounds are in units of the measure."""

    flow: str
    """Name of B."""
    paired: PairedMeasure
    p: float | None
    """p-value of the sign-flip test over conversations."""
    p_adjusted: float | None
    """p-value for its family; None if no signs could reject the measure."""
    family: int
    """Number of measures that are tested together."""
    alpha: float
    relative_margin: float | None = None
    """Margin, for costs as a share of A's mean; None for a test in both directions."""
    secondary_reason: str = ""
    """Reason why it is not primary; "" if it is."""
    bounds: Callable[[PairedMeasure, float, float], float | None] = bound_of_all
    ended_early: bool = False
    """True if the run ended before a verdict; equal turns so far then prove nothing."""

    @property
    def measure(self) -> Measure:
        return self.paired.measure

    @property
    def primary(self) -> bool:
        """Return True for a primary measure."""
        return not self.secondary_reason

    @property
    def n(self) -> int:
        """Return the number of paired turns."""
        return len(self.paired.keys)

    @property
    def conversations(self) -> int:
        return self.paired.conversations

    @property
    def a(self) -> float | None:
        return self.paired.means[0]

    @property
    def b(self) -> float | None:
        return self.paired.means[1]

    @property
    def changed(self) -> bool:
        """Return True if any turn differs."""
        return self.paired.changed

    @property
    def level(self) -> float:
        """Return the one-sided level of one test after the correction for the family."""
        return self.alpha / (2 if self.relative_margin is None else 1) / max(1, self.family)

    @cached_property
    def loss(self) -> float | None:
        """Return the mean difference in the worse direction; None if unknown."""
        if self.paired.corrected is not None:
            return self.paired.corrected.value
        return float(self.paired.losses.mean()) if len(self.paired.losses) else None

    @property
    def difference(self) -> float | None:
        """Return the mean of B - A; None if unknown."""
        return None if self.loss is None else self.paired.direction * self.loss

    @property
    def d_z(self) -> float | None:
        return cohens_dz(self.paired.differences)

    @cached_property
    def ci95(self) -> Interval:
        """Return the 95 % interval of B - A; None if it is unknown."""
        if self.loss is None:
            return None
        if self.paired.corrected is None:
            return mean_interval(self.paired.column)[1]
        ends = self.paired.corrected.clipped(-1, 1).interval
        return None if ends is None else (-ends[1], -ends[0])

    @property
    def margin(self) -> float:
        return (self.relative_margin or 0.0) * ((self.a or 0.0) if self.measure in COSTS else 1.0)

    @cached_property
    def upper_bound(self) -> float | None:
        """Return the upper bound of the loss at level 1 - alpha; None if there is no bound."""
        return self.bounds(self.paired, 1.0, self.alpha)

    @property
    def is_beyond(self) -> bool:
        """Return True if a loss within the margin is excluded, for the whole family."""
        least = self.bounds(self.paired, -1.0, self.alpha / max(1, self.family))
        return least is not None and least > self.margin

    @cached_property
    def kind(self) -> VerdictKind:
        if self.loss is None:
            return "unknown"
        excluded = False
        if self.relative_margin is not None and self.upper_bound is not None:
            # Ignore rounding errors.
            excluded = self.upper_bound <= self.margin + 1e-12 * max(1.0, self.margin)
        if not (self.paired.changed or self.paired.left_out or (self.ended_early and not excluded)):
            return "unchanged"
        if excluded:
            return "pass"
        if not self.paired.changed or self.p_adjusted is None or self.p_adjusted >= self.alpha:
            return "undecided"
        return "worse" if self.relative_margin is not None or self.loss > 0 else "better"

    @property
    def is_shown(self) -> bool:
        return self.kind in ("better", "worse")

    @cached_property
    def claim(self) -> Claim:
        """Return what a difference is true of; "" if none is shown. Each step contains those before it.

        `more often` is the sign-flip test, which tests exchangeability. `on average` needs `ROUGH` conversations and
        the test of the mean (`mean_p_value`), corrected for the family. `whatever was not seen` also excludes that
        unseen conversations undo the difference: a share |d| / (|d| + r) of them would, if r is the most that one can
        change, and C conversations without one have probability (1 + |d| / r) ** -C. A cost needs a declared stop.
        A score needs `MIN_FOR_MEAN_SCORE` conversations or the last step, for fewer may show no collapse of one in ten.

        Nothing is claimed on average if the turns that one side leaves undecided could undo the difference.
        """
        if not self.is_shown or self.loss is None:
            return ""
        paired = self.paired
        p = mean_p_value(paired.sums, paired.counts) * max(1, self.family) / (1 if self.relative_margin is None else 2)
        is_hidden = paired.left_out >= abs(self.loss) * self.n
        if self.conversations < ROUGH or is_hidden or (p >= self.alpha and paired.corrected is None):
            return "more often"
        if not self.measure.is_bounded and paired.stop is None:
            return "on average"
        weight = max(float(paired.counts.max()), paired.longest) * self.conversations / self.n
        reach = weight * paired.max_change[self.loss > 0]
        # With a stop below all costs of A, B cannot lose.
        undone = (1 + abs(self.loss) / reach) ** -self.conversations if reach > 0 else 0.0
        if undone <= self.alpha:
            return "on average, whatever was not seen"
        is_too_few = self.measure.is_bounded and self.conversations < MIN_FOR_MEAN_SCORE
        return "more often" if is_too_few else "on average"

    @property
    def verdict(self) -> str:
        """Return the verdict as a word for machines; `words` adds the claim."""
        if self.relative_margin is None:
            return IN_A_PAIR.get(self.kind, self.kind)
        if self.kind == "worse":
            return "worse beyond margin" if self.is_beyond else "worse, size undecided"
        return "undecided" if self.kind == "unknown" else self.kind

    @property
    def words(self) -> str:
        """Return the verdict as it is printed, with the claim of a difference."""
        return f"{self.verdict} {self.claim}" if self.relative_margin is None and self.claim else self.verdict

    @property
    def interval(self) -> str:
        """Return the 95 % interval of B - A as text, `rough` for costs of few conversations; "" if it is unknown."""
        if self.ci95 is None:
            return ""
        is_rough = not self.measure.is_bounded and self.conversations < ROUGH
        return f"[{format_number(self.ci95[0])}, {format_number(self.ci95[1])}]{' rough' if is_rough else ''}"

    @cached_property
    def detectable_loss(self) -> float | None:
        """Return the loss that is detected with 80 % power; None if there is none or it is unknown."""
        if self.secondary_reason or self.loss is None or self.a is None:
            return None
        loss = detectable_loss(self.paired.sums, self.paired.counts, self.level)
        if loss is None or (self.relative_margin is None and self.measure in COSTS):
            return loss
        room = max(self.a, self.paired.max_change[0] - self.a)
        if self.relative_margin is not None:
            if self.upper_bound is not None:
                # A smaller loss is too often within the margin to get the verdict worse.
                error = standard_error(self.paired.sums, self.paired.counts)
                loss = max(loss, self.margin + NORMAL.inv_cdf(POWER) * error - (self.upper_bound - self.loss))
            room = math.inf if self.measure in COSTS else self.a
            room = 1 - self.a if self.measure.name == "failed" else room
        return loss if loss <= room else None  # the mean cannot change by more

    @cached_property
    def conversations_needed(self) -> Needed | None:
        """Return how many more conversations exclude a loss of the margin, if both sides are equally good.

        Without a margin it is `MARGIN`, for qualities. None if there is a verdict, or no number helps.
        """
        margin = MARGIN if self.relative_margin is None and self.measure.is_bounded else self.margin
        reach = self.paired.max_change[0] if self.kind == "undecided" else math.inf
        if self.secondary_reason or math.isinf(reach):
            return None
        return more_if_equal(self.paired, margin, self.alpha)

    @property
    def least_to_pass(self) -> str:
        """Return the reason why a cost cannot pass: no stop, or too few conversations; "" if it can."""
        reach, stop = self.paired.max_change[0], self.paired.stop
        if self.measure not in COSTS or self.measure.name == "failed" or not self.a:
            return ""
        if stop is None:
            return f"no stop of {self.measure.name} is declared (`stops` in the spec), so no loss is excluded"
        if math.isinf(reach):
            return f"a turn took {self.measure.show(float(self.paired.b.max()))}, beyond the declared stop of {stop:g}"
        least = math.log(self.alpha) / math.log1p(-self.margin / reach) if self.margin < reach else 0.0
        if least <= self.conversations:
            return ""
        times = f"the stop is {stop / self.a:.1f} x the usual"
        return f"cannot pass at {self.relative_margin:+.0%} with fewer than {math.ceil(least)} conversations ({times})"

    @property
    def excluded(self) -> str:
        """Return the losses that are excluded, as text."""
        bound = "" if self.upper_bound is None else f"at most {format_number(self.upper_bound, '+')} worse"
        alone = "" if self.conversations > 1 else "no bound on one conversation"
        return ", ".join(filter(None, (bound or alone, self.least_to_pass)))

    @property
    def cells(self) -> list[str]:
        """Return the cells of a table row: n, both means, difference, interval, adjusted p and verdict."""
        means = [self.measure.show(self.a), self.measure.show(self.b), format_number(self.difference, "+")]
        p = "-" if self.p_adjusted is None else f"{self.p_adjusted:.2g}"
        return [str(self.n), *means, self.interval or "-", p, self.words]

    @property
    def change(self) -> str:
        """Return measure, flow and both means as text."""
        return f"{self.measure.name} of {self.flow} {self.measure.show(self.a)} -> {self.measure.show(self.b)}"

    @property
    def why(self) -> str:
        """Return the verdict with its figures as a sentence; for measures with a margin."""
        if self.loss is None:
            hidden = f"one side leaves all {self.paired.left_out} turns undecided" if self.paired.left_out else ""
            return f"undecided: {hidden or 'unknown in this run, known in the baseline'}"
        if self.kind == "unchanged":
            return f"unchanged on these {self.n} turns"
        change = f"{'worse' if self.loss > 0 else 'better'} by {format_number(abs(self.loss))}"
        if abs(self.loss) < 1e-9:
            change = "as good on average"
        if self.paired.is_constant_shift:
            change += " on every turn"
        limit = f"the margin is {format_number(self.margin)}"
        most = self.excluded
        if self.kind == "pass":
            return f"pass: {change}, {most} ({self.conversations} conversations); {limit}"
        if self.kind == "worse":
            tests = f"over {self.family} tests" if self.family > 1 else "in one test"
            return f"{self.verdict}: {change}, p = {self.p_adjusted:.2g} {tests}; {limit}"
        hint = "more conversations like these do not help"
        if self.secondary_reason:
            return f"undecided: {change}, {most}; {limit}"
        if self.conversations < 2:
            hint = "one conversation is too few"
        elif self.conversations_needed:
            hint = format_needed(self.conversations_needed, self.margin)
        return f"undecided, {hint}: {change}, {most}; {limit}"

    def __str__(self) -> str:
        if not self.is_shown:
            return self.verdict
        means = f"{self.measure.show(self.a)} -> {self.measure.show(self.b)}"
        return f"{self.kind} {self.claim} in {self.measure.name} ({means}, p = {self.p_adjusted:.2g})"


def format_needed(needed: Needed, margin: float) -> str:
    """Return the condition, the number and the promise as one clause."""
    return f"if they are equally good, {needed} exclude a loss of {format_number(margin)} (4 times in 5)"
