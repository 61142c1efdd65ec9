"""A family of measures tested together: which of them differ, by maxT."""

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


class MeasureOutcome(NamedTuple):
    """Of one measure; None is not known."""

    p: float | None
    p_adjusted: float | None
    """For the whole family; None where the measure could not be rejected, whatever the signs, and is no part of it."""
    family: int
    """The number of measures that are tested together."""


def run_family_test(
    members: Sequence[PairedMeasure],
    alpha: float,
    *,
    two_sided: bool,
    families: Sequence[object] = (),
) -> list[MeasureOutcome]:
    """Of each member; their conversations must be numbered alike.

    `families`: to which each belongs, by default to one. In a family is what could be rejected at all. Where only k
    conversations differ, p is at least 2 ** -k, whatever the signs; what cannot raise an alarm must not make the others
    pay (Tarone 1990).
    """
    found = [MeasureOutcome(1.0 if len(member.differences) else None, None, 0) for member in members]
    changed = [place for place, member in enumerate(members) if member.changed]
    if not changed:
        return found
    sums = np.column_stack([members[place].sums for place in changed])
    flips = SignFlips(sums, two_sided=two_sided)
    certain = np.array(
        [
            constant_shift_p_value(members[p].conversations, two_sided) if members[p].is_constant_shift else 1
            for p in changed
        ]
    )
    certain = np.where(two_sided | (sums.sum(axis=0) > 0), certain, 1.0)
    testable = (np.minimum(flips.minimum_p_values(), certain) <= alpha) & np.array(
        [members[p].conversations > 1 for p in changed]
    )
    families = families or [None] * len(members)
    of = [families[place] for place in changed]
    for family in dict.fromkeys(of):
        own = np.array([other == family for other in of])
        tested, size = flips.test(own & testable), int((own & testable).sum())
        for column in np.flatnonzero(own).tolist():
            p = min(float(tested.p[column]), float(certain[column]))
            adjusted = min(float(tested.p_adjusted[column]), float(certain[column]) * size)
            found[changed[column]] = MeasureOutcome(p, adjusted if testable[column] else None, size)
        for place, outcome in enumerate(found):
            if families[place] == family:
                found[place] = outcome._replace(family=size)
    return found


def constant_shift_p_value(conversations: int, two_sided: bool = False) -> float:
    """A p-value for a difference that is the same, and not 0, on every turn of all: 2 * 4**-conversations, one-sided.

    If both values of a turn come from one distribution, P(difference = k) <= 1/4 for every k > 0 (the differences of k
    form paths, and by Motzkin and Straus 1965 the weight on the edges of a graph without triangles is at most 1/4), and
    P(difference > 0) <= 1/2. So n independent turns agree on some k > 0 with probability at most 1/2 * (1/4)**(n - 1).
    Turns of one conversation may hang together; conversations are what is independent, and n counts them.
    """
    return (4 if two_sided else 2) * 0.25**conversations
