"""What broke: parts of the data that differ where the whole does not show it.

A slice is the turns that share a position, or a value of their own or their conversation's metadata: a category, a tag,
a language. All slices of all that decides are tested as one family of their own, beside that of the verdict; what is
found there advises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.stats.sign_flips import SignFlips
from agentlab.evals.store.measures import COSTS
from agentlab.evals.store.run import StoredRun

DRAWS = 2000
MIN_CONVERSATIONS = 5
"""Conversations of a slice; signs of fewer cannot reject anything."""
MAX_VALUES = 12
"""Of a key of the metadata: one with more tells turns apart and not kinds of turns."""
NOT_SLICES = ("today", "now", "evidence", "qid")
Place = tuple[str, int]
"""A conversation and the number of a turn."""


class Slice(NamedTuple):
    """One measure of one side in one slice."""

    name: str
    flow: str
    measure: str
    a: float
    b: float
    n: int
    conversations: int
    p_adjusted: float
    tests: int
    """How many slices were tested together."""

    def __str__(self) -> str:
        where = f"{self.name} ({self.n} turns of {self.conversations} conversations)"
        sure = f"p = {self.p_adjusted:.2g} over {self.tests} slices"
        return f"{self.measure} of {self.flow} {self.a:.3g} -> {self.b:.3g} in {where}, {sure}"


def slices_by_turn(run: StoredRun) -> dict[Place, set[str]]:
    """Of each turn of a run the slices it lies in; what the data set says of it only where that is at hand."""
    categories = {(row.conversation, row.turn): row.category for row in run.map_turns()}
    several = len({number for _, number in categories}) > 1
    found: dict[Place, set[str]] = {}
    for (name, number), category in categories.items():
        own = {f"turn {number + 1}" if number < 3 else "turns from the fourth on"} if several else set()
        own |= set(_named({"category": category}))
        if turn := run.expected_turn(name, number):
            own |= {*_named(run.conversations[name].metadata), *_named(turn.metadata)}
        found[name, number] = own
    values: defaultdict[str, set[str]] = defaultdict(set)
    for own in found.values():
        for label in own:
            values[label.partition(" ")[0]].add(label)
    many = {key for key, of in values.items() if len(of) > MAX_VALUES}
    return {place: {label for label in own if label.partition(" ")[0] not in many} for place, own in found.items()}


def _named(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in metadata.items():
        tags = value if isinstance(value, (list, tuple)) else [value]
        if key not in NOT_SLICES:
            yield from (f"{key} {tag}" for tag in tags if isinstance(tag, (str, int)) and 0 < len(str(tag)) <= 40)


def significant_slices(
    members: Iterable[tuple[str, PairedMeasure]], places: Mapping[Place, set[str]], alpha: float, *, two_sided: bool
) -> list[Slice]:
    """The slices in which a quality of a flow is worse, or with `two_sided` differs, most certain first.

    `members`: flow and measure, whose conversations must be numbered alike.
    """
    columns: list[np.ndarray] = []
    found: list[tuple[str, str, PairedMeasure, np.ndarray]] = []
    for flow, paired in members:
        if paired.measure in COSTS or not paired.changed:
            continue
        for name, mask in _masks(paired, places):
            inside = paired.conversation_numbers[mask]
            if len(np.unique(inside)) >= MIN_CONVERSATIONS and paired.differences[mask].any():
                columns.append(np.bincount(inside, weights=paired.losses[mask], minlength=paired.size))
                found.append((name, flow, paired, mask))
    if not columns:
        return []
    tests = SignFlips(np.column_stack(columns), two_sided=two_sided, draws=DRAWS)
    can = tests.minimum_p_values() <= alpha
    shown, many = [], int(can.sum())
    for (name, flow, paired, mask), p, testable in zip(found, tests.test(can).p_adjusted.tolist(), can, strict=True):
        if testable and p < alpha:
            a, b, size = (
                float(paired.a[mask].mean()),
                float(paired.b[mask].mean()),
                len(np.unique(paired.conversation_numbers[mask])),
            )
            shown.append(Slice(name, flow, paired.measure.name, a, b, int(mask.sum()), size, p, many))
    return sorted(shown, key=lambda each: (each.p_adjusted, -abs(each.b - each.a)))


def _masks(paired: PairedMeasure, places: Mapping[Place, set[str]]) -> Iterator[tuple[str, np.ndarray]]:
    """Each slice of a measure that is not all of it."""
    inside: defaultdict[str, list[int]] = defaultdict(list)
    for number, (conversation, turn, _) in enumerate(paired.keys):
        for label in places.get((conversation, turn), ()):
            inside[label].append(number)
    for name in sorted(inside):
        if len(inside[name]) < len(paired.keys):
            mask = np.zeros(len(paired.keys), dtype=bool)
            mask[inside[name]] = True
            yield name, mask


def hidden_in_overall(slices: Sequence[Slice], seen: Iterable[tuple[str, str]]) -> list[Slice]:
    """Those of a flow and measure that the whole does not show; `seen` names those that it does."""
    known = {*seen}
    return [each for each in slices if (each.flow, each.measure) not in known]
