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
    # A member of several families has one column.
    own = [*{id(member): member for member in members if member.changed}.values()]
    if not own:
        return outcomes
    columns = {id(member): column for column, member in enumerate(own)}
    flips = SignFlips(np.column_stack([m.sums * (m.corrected is None) for m in own]), two_sided=two_sided)
    constant = [_p_without_flips(member, two_sided=two_sided) for member in own]
    labelled = np.array([member.corrected is not None for member in own])
    several = np.array([member.conversations > 1 for member in own])
    testable = ((np.minimum(flips.minimum_p_values(), constant) <= alpha) | labelled) & several
    inside: dict[object, list[int]] = {}
    for index, family in enumerate(families or [None] * len(members)):
        inside.setdefault(family, []).append(index)
    for indices in inside.values():
        is_tested = np.zeros(len(own), dtype=bool)
        is_tested[[columns[id(members[index])] for index in indices if members[index].changed]] = True
        is_tested &= testable
        tested, size = flips.test(is_tested), int(is_tested.sum())
        for index in indices:
            outcomes[index] = outcomes[index]._replace(family=size)
            if members[index].changed:
                column = columns[id(members[index])]
                p = min(float(tested.p[column]), constant[column])
                adjusted = min(float(tested.p_adjusted[column]), constant[column] * size)
                outcomes[index] = MeasureOutcome(p, adjusted if testable[column] else None, size)
    return outcomes


def _p_without_flips(member: PairedMeasure, *, two_sided: bool) -> float:
    """Return the p-value by human labels, or that of a constant loss; 1 without both."""
    if member.corrected is not None:
        return member.corrected.p_value(two_sided=two_sided)
    is_tested = member.is_constant_shift and (two_sided or member.losses[0] > 0)
    return constant_shift_p_value(member.conversations, two_sided) if is_tested else 1.0


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
