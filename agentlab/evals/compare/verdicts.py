"""The verdict on one measure of one flow, and what it means.

    unchanged             every turn is equal: a statement about these turns
    pass                  a mean loss beyond the margin is excluded at level 1 - alpha, rare breaks included
    worse beyond margin   there is a loss, and it is larger than the margin
    worse, size undecided there is a loss; it may lie within the margin or beyond
    undecided             neither a loss nor its absence is shown; the verdict says how many conversations more would

"There is a loss": the sign-flip test of the whole family rejects at alpha. The bounds are `statistics.loss_bound`,
which assumes no distribution. Of a metric between 0 and 1 none can pass with fewer than ln(alpha) / ln(1 - margin)
conversations, 59 at a margin of .05, 29 at .10: with fewer, it is not yet unlikely that a break of one conversation in
twenty has stayed unseen. Costs have no end; what is assumed of them says `Paired.reach`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import numpy as np

from agentlab.evals.compare.family import Outcome
from agentlab.evals.compare.paired import Paired
from agentlab.evals.stats.signs import POWER
from agentlab.evals.stats.statistics import NORMAL, loss_bound, may_lose
from agentlab.evals.store.measures import COSTS, brief

Kind = Literal["unchanged", "pass", "worse beyond margin", "worse, size undecided", "undecided"]
WORSE: tuple[Kind, ...] = ("worse beyond margin", "worse, size undecided")
MOST_CONVERSATIONS = 100_000
"""More than that is no advice."""


class Judged:
    """One measure of one flow, and the verdict on it; losses, margin and bound are in the units of the measure."""

    def __init__(
        self, flow: str, paired: Paired, share: float, alpha: float, outcome: Outcome, *, advises: str = ""
    ) -> None:
        self.flow, self.measure, self.alpha = flow, paired.measure, alpha
        self.paired = paired
        self.advises = advises
        """Why it does not decide; "" where it does."""
        self.n, self.conversations = len(paired.keys), paired.conversations
        self.baseline, self.run = paired.means
        self.margin = share * (self.baseline or 0.0) if self.measure in COSTS else share
        self.loss = float(paired.losses.mean()) if len(paired.losses) else None
        self.p, self.p_adjusted, self._visible, self.family = outcome

    @cached_property
    def bound(self) -> float | None:
        """The loss is at most this, at level 1 - alpha; None where nothing bounds it."""
        return self._bound(1.0, self.alpha)

    def _bound(self, sign: float, alpha: float) -> float | None:
        if self.loss is None or not self.paired.changed:
            return self.loss
        bound = loss_bound(sign * self.paired.sums, self.paired.counts, self.paired.reach[sign < 0], alpha)
        return None if bound is None else sign * bound

    @cached_property
    def verdict(self) -> Kind:
        if self.loss is None:
            return "undecided"
        if not self.paired.changed:
            return "unchanged"
        # A rounding error is not a loss.
        if self.bound is not None and self.bound <= self.margin + 1e-12 * max(1.0, self.margin):
            return "pass"
        if self.p_adjusted is None or self.p_adjusted >= self.alpha:
            return "undecided"
        return WORSE[0] if self.at_least is not None and self.at_least > self.margin else WORSE[1]

    @property
    def at_least(self) -> float | None:
        """The lower bound of the loss, for the whole family."""
        return self._bound(-1.0, self.alpha / max(1, self.family))

    @property
    def visible(self) -> float | None:
        """The smallest true loss that is found in 80 % of such runs; None where none can be, or it is not known."""
        if self._visible is None or self.bound is None or self.loss is None or self.baseline is None:
            return None
        left = self.paired.sums - self.paired.counts * self.loss
        error = math.sqrt(float((left**2).sum()) * self.conversations / (self.conversations - 1)) / self.n
        # Below this, the bound would lie within the margin too often to be called worse.
        found = max(self._visible, self.margin + NORMAL.inv_cdf(POWER) * error - (self.bound - self.loss))
        most = math.inf if self.measure in COSTS else self.baseline
        return found if found <= (1 - self.baseline if self.measure.name == "failed" else most) else None

    @cached_property
    def more(self) -> int | None:
        """How many conversations more, like these, would tell; None where none would, or it is not asked."""
        if self.verdict != "undecided" or self.advises or self.conversations < 2 or self.loss is None:
            return None
        sums, counts = self.paired.sums, self.paired.counts
        least = math.inf
        if self.loss < self.margin:
            least = self._times_to_pass(sums[counts > 0], counts[counts > 0])
        if self.loss > 0:
            shown = conversations_to_show(sums, self.conversations, self.alpha / max(1, self.family))
        else:
            shown = math.inf
        more = min(shown, max(1.0, (least - 1) * self.conversations))
        return math.ceil(more) if more <= MOST_CONVERSATIONS else None

    def _times_to_pass(self, sums: np.ndarray, counts: np.ndarray) -> float:
        """How many times the conversations it takes to exclude a loss beyond the margin, if all go on like these."""
        low, high = 1.0, 2.0
        while may_lose(sums, counts, self.paired.reach[0], self.margin, high) > self.alpha:
            low, high = high, 2 * high
            if high * self.conversations > 2 * MOST_CONVERSATIONS:
                return math.inf
        while (high - low) * self.conversations > 0.5:
            middle = (low + high) / 2
            beyond = may_lose(sums, counts, self.paired.reach[0], self.margin, middle) > self.alpha
            low, high = (middle, high) if beyond else (low, middle)
        return high

    @property
    def moved(self) -> str:
        """From where to where."""
        show = self.measure.show
        return f"{self.measure.name} of {self.flow} {show(self.baseline)} -> {show(self.run)}"

    @property
    def why(self) -> str:
        """The verdict in words."""
        if self.loss is None:
            return "undecided: unknown in this run, known in the baseline"
        if self.verdict == "unchanged":
            return f"unchanged on these {self.n} turns"
        moved = f"{'worse' if self.loss > 0 else 'better'} by {brief(abs(self.loss))}"
        if abs(self.loss) < 1e-9:
            moved = "as good on average"
        if self.paired.constant:
            moved += " on every turn"
        limit = f"the margin is {brief(self.margin)}"
        most = "no bound on one conversation" if self.bound is None else f"at most {brief(self.bound, '+')} worse"
        if self.verdict == "pass":
            return f"pass: {moved}, {most} ({self.conversations} conversations); {limit}"
        if self.verdict in WORSE:
            tests = f"over {self.family} tests" if self.family > 1 else "in one test"
            return f"{self.verdict}: {moved}, p = {self.p_adjusted:.2g} {tests}; {limit}"
        told = "no number of conversations like these would tell"
        if self.advises:
            return f"undecided: {moved}, {most}; {limit}"
        if self.conversations < 2:
            told = "one conversation cannot tell"
        elif self.more:
            told = f"{conversations_more(self.more)} would tell"
        return f"undecided, {told}: {moved}, {most}; {limit}"


def conversations_more(number: int) -> str:
    return f"{number} more conversation{'s' if number > 1 else ''}"


def conversations_to_show(losses: np.ndarray, conversations: int, alpha: float) -> float:
    """How many conversations more it takes to reject "no loss" at alpha, if they all go on like these; maybe inf."""
    moved = losses[np.abs(losses) > 1e-12]
    strength = float(moved.sum() / math.sqrt(float((moved**2).sum()))) if len(moved) else 0.0
    if strength <= 0:
        return math.inf
    # Twice the evidence of the signs takes four times the conversations; and enough of them must differ.
    times = max((NORMAL.inv_cdf(1 - alpha) / strength) ** 2, math.log2(1 / alpha) / len(moved))
    return max(1.0, (times - 1) * conversations)
