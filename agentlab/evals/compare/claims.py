"""Tests a claim about each pair of flows, such as "B is cheaper and not worse", and answers it in one sentence.

    al.evaluate_claims(al.compare(run), improves=["cost_usd"], max_loss={"answer_f1": 0.05})

A claim holds if all its parts hold, so the parts need no correction (an intersection-union test): its p-value is the
largest p-value of its parts. Holm's procedure adjusts the claims of several pairs (A simple sequentially rejective
multiple test procedure, 1979). `improves`: B is better than A by the one-sided sign-flip test. `max_loss`: a mean loss
beyond the margin is excluded, as in a gate. Equal turns exclude a loss only if there are enough conversations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.compare.family import MeasureOutcome, run_family_test
from agentlab.evals.compare.measure_verdict import MeasureVerdict, format_needed, loss_p_value
from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.compare.pairs import ALPHA, Comparison, FlowPair
from agentlab.evals.stats.planning import Needed
from agentlab.evals.store.measures import format_number


@dataclass(frozen=True)
class ClaimResult:
    """Answer to a claim about one pair of flows; `str()` gives it as a sentence."""

    a: str
    b: str
    p: float
    """p-value of the whole claim."""
    p_adjusted: float
    """p-value after Holm's correction for all pairs."""
    parts: tuple[str, ...]
    refuted: bool
    """True if the opposite of a part is shown."""
    more: Needed | None
    """Conversations beyond these that exclude the losses, if both flows are equally good; None if no number does."""
    needed: str
    """`more` as text, with its condition."""

    @property
    def verdict(self) -> str:
        """`yes`, `no` or `undecided`, at the level .05."""
        return "yes" if self.p_adjusted < ALPHA else "no" if self.refuted else "undecided"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as `agentlab compare --json` prints it."""
        return {**asdict(self), "more": self.more and self.more._asdict(), "reading": self.verdict, "says": str(self)}

    def __str__(self) -> str:
        needed = f"; {self.needed}" if self.verdict == "undecided" and self.more else ""
        sides = f"{self.b} against {self.a}"
        return f"{self.verdict}: {sides} is {' and '.join(self.parts)}; p = {self.p_adjusted:.2g}{needed}"


def evaluate_claims(
    comparison: Comparison, *, improves: Sequence[str] = (), max_loss: Mapping[str, float] | None = None
) -> list[ClaimResult]:
    """Answer for each pair of a comparison: is B better in all of `improves`, and within every margin of `max_loss`?

    `improves` names measures, costs or qualities. `max_loss` maps measures to margins, as in `al.gate`: absolute for
    quality (0.05 of a score from 0 to 1), relative to A's mean for costs. Each result has a `verdict` (yes, no or
    undecided), a p-value adjusted for all pairs, and the conversations needed beyond these.

    Raises RunError for a measure that is missing or unknown on a turn of a pair, and for a negative margin.
    """
    claims = [_claim(pair, improves, max_loss or {}) for pair in comparison.pairs]
    reached = 0.0
    order = sorted(range(len(claims)), key=lambda index: claims[index].p)
    for rank, index in enumerate(order):
        reached = max(reached, min(1.0, claims[index].p * (len(claims) - rank)))
        claims[index] = replace(claims[index], p_adjusted=reached)
    return claims


def _claim(pair: FlowPair, improves: Sequence[str], max_loss: Mapping[str, float]) -> ClaimResult:
    p, parts, refuted = 0.0, [], False
    open_: list[MeasureVerdict] = []
    for name in improves:
        paired = _paired_values(pair, name)
        gain, loss = replace(paired, a=paired.b, b=paired.a), paired
        p_value, contrary = (run_family_test([side], ALPHA, two_sided=False)[0].p or 1.0 for side in (gain, loss))
        means = " -> ".join(map(paired.measure.show, paired.means))
        word, other = ("cheaper", "dearer") if paired.direction > 0 else ("better", "worse")
        p_of_either = min(p_value, contrary)
        claim = MeasureVerdict(flow=pair.b, paired=paired, p=None, p_adjusted=p_of_either, family=1, alpha=ALPHA).claim
        statement = f"{word if p_value < ALPHA else other} {claim}" if claim else f"not shown to be {word}"
        parts.append(f"{statement} in {name} ({means}, p = {p_of_either:.2g})")
        p, refuted = max(p, p_value), refuted or contrary < ALPHA
    for name, margin in max_loss.items():
        if math.isnan(margin) or margin < 0:
            raise RunError(f"the margin of {name} is {margin}; it must be 0 or more")
        paired = _paired_values(pair, name)
        verdict = MeasureVerdict(
            flow=pair.b, paired=paired, **MeasureOutcome(None, None, 1)._asdict(), alpha=ALPHA, relative_margin=margin
        )
        lost = loss_p_value(paired, verdict.margin)
        worse = verdict.is_beyond
        word = "not worse" if lost <= ALPHA else "worse" if worse else "not shown to be non-inferior"
        limit = f"{verdict.excluded}, margin {format_number(verdict.margin)}"
        parts.append(f"{word} in {name} ({limit})")
        p, refuted = max(p, lost), refuted or worse
        if lost > ALPHA:
            open_.append(verdict)
    most = max(open_, key=lambda each: each.conversations_needed or (math.inf, math.inf), default=None)
    more = most.conversations_needed if most else None
    needed = format_needed(more, most.margin) if most and more else ""
    return ClaimResult(pair.a, pair.b, p, p, tuple(parts), refuted, more, needed)


def _paired_values(pair: FlowPair, name: str) -> PairedMeasure:
    plugins.check_names("measure of this comparison", [name], pair.paired, kind=RunError)
    if not len(pair.paired[name].differences):
        raise RunError(f"{name} is not known on every turn of {pair.a} and {pair.b}")
    return pair.paired[name]
