"""Tests a family of measures together, by maxT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.stats.sign_flips import SignFlips

TEST_ASSUMPTION = (
    "signs of whole conversations are flipped, which tests whether the two sides are exchangeable, not whether their"
    " means are the same; a difference that is the same on every turn has a bound of its own"
)


MIN_DIFFERING = 6
"""Fewest conversations that must differ for a verdict in both directions: with 5 equal signs p is 2 / 2**5 = .0625."""


class MeasureOutcome(NamedTuple):
    """Result of the test of one measure."""

    p: float | None
    """p-value of the measure alone; None if a value is unknown."""
    p_adjusted: float | None
    """p-value for the family; None if no signs could reject the measure, which then is not in the family."""
    family: int
    """Number of measures that are tested together, in all gates that share a level."""

    def shared_by(self, gates: int) -> MeasureOutcome:
        """Return the outcome as one of `gates` that share a level (Bonferroni)."""
        adjusted = None if self.p_adjusted is None else min(1.0, self.p_adjusted * gates)
        return self._replace(p_adjusted=adjusted, family=self.family * gates)


def run_family_test(
    members: Sequence[PairedMeasure],
    alpha: float,
    *,
    two_sided: bool,
    families: Sequence[object] = (),
) -> list[MeasureOutcome]:
    """Return the outcome of each member; the members must number their conversations alike.

    `families` assigns each member to a family, by default to one. A family contains only members that could be
    rejected: if k conversations differ p is at least 2 ** -k. A member that cannot be rejected must not weaken the
    correction of the others (Tarone 1990).
    """
    outcomes = [MeasureOutcome(1.0 if len(member.differences) else None, None, 0) for member in members]
    changed = [index for index, member in enumerate(members) if member.changed]
    if not changed:
        return outcomes
    own = [members[index] for index in changed]
    labelled = np.array([member.corrected is not None for member in own])
    sums = np.column_stack([member.sums * (member.corrected is None) for member in own])
    flips = SignFlips(sums, two_sided=two_sided)
    shift_p = [constant_shift_p_value(m.conversations, two_sided) if m.is_constant_shift else 1 for m in own]
    constant = np.where(two_sided | (sums.sum(axis=0) > 0), np.array(shift_p), 1.0)
    by_labels = [m.corrected.p_value(two_sided=two_sided) if m.corrected else 1 for m in own]
    constant = np.where(labelled, by_labels, constant)
    several = np.array([member.conversations > 1 for member in own])
    testable = ((np.minimum(flips.minimum_p_values(), constant) <= alpha) | labelled) & several
    numbers = {family: number for number, family in enumerate(dict.fromkeys(families or [None]))}
    numbered = np.array([numbers[family] for family in families or [None] * len(members)])
    for number in range(len(numbers)):
        inside = numbered[changed] == number
        tested, size = flips.test(inside & testable), int((inside & testable).sum())
        for column in np.flatnonzero(inside).tolist():
            p = min(float(tested.p[column]), float(constant[column]))
            adjusted = min(float(tested.p_adjusted[column]), float(constant[column]) * size)
            outcomes[changed[column]] = MeasureOutcome(p, adjusted if testable[column] else None, size)
        for index in np.flatnonzero(numbered == number).tolist():
            outcomes[index] = outcomes[index]._replace(family=size)
    return outcomes


def constant_shift_p_value(conversations: int, two_sided: bool = False) -> float:
    """Return the p-value of a nonzero difference that is equal on every turn: 2 * 4**-conversations, one-sided.

    If both values of a turn come from one distribution, P(difference = k) <= 1/4 for every k > 0: the pairs that differ
    by k form paths, and the edges of a graph without triangles have at most weight 1/4 (Motzkin and Straus 1965). Also,
    P(difference > 0) <= 1/2. So n independent turns agree on some k > 0 with probability at most 1/2 * (1/4)**(n - 1).
    Only conversations are independent of each other, so n counts conversations. In both directions it is 1 below
    `MIN_DIFFERING` conversations.
    """
    if two_sided and conversations < MIN_DIFFERING:
        return 1.0
    return (4 if two_sided else 2) * 0.25**conversations
