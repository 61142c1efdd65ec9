"""Finds slices that differ although the total does not.

A slice is the turns with the same position, or with the same metadata value: a category, a tag, a language. Metadata is
that of the turn or of its conversation. All slices of all primary measures are one family of tests, apart from the
family of the verdict. Significant slices are only reported.
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

MAX_FLIPS = 2000
MIN_CONVERSATIONS = 5
"""Conversations of a slice; the signs of fewer cannot reject."""
MAX_VALUES = 12
"""Maximum number of values of a metadata key; a key with more values is an id, not a kind of turns."""
NOT_SLICES = ("today", "now", "evidence", "qid")
TurnId = tuple[str, int]
"""Conversation and position of a turn."""


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
    """Number of slices that are tested together."""

    def __str__(self) -> str:
        slice_ = f"{self.name} ({self.n} turns of {self.conversations} conversations)"
        sure = f"p = {self.p_adjusted:.2g} over {self.tests} slices"
        return f"{self.measure} of {self.flow} {self.a:.3g} -> {self.b:.3g} in {slice_}, {sure}"


def slices_by_turn(run: StoredRun) -> dict[TurnId, set[str]]:
    """Return the slices of each turn of a run; metadata needs the data set."""
    categories = {(row.conversation, row.turn): row.category for row in run.map_turns()}
    several = len({number for _, number in categories}) > 1
    slices: dict[TurnId, set[str]] = {}
    for (name, number), category in categories.items():
        own = {f"turn {number + 1}" if number < 3 else "turns from the fourth on"} if several else set()
        own |= set(_named({"category": category}))
        if turn := run.expected_turn(name, number):
            own |= {*_named(run.conversations[name].metadata), *_named(turn.metadata)}
        slices[name, number] = own
    values: defaultdict[str, set[str]] = defaultdict(set)
    for own in slices.values():
        for label in own:
            values[label.partition(" ")[0]].add(label)
    many = {key for key, labels in values.items() if len(labels) > MAX_VALUES}
    return {turn: {label for label in own if label.partition(" ")[0] not in many} for turn, own in slices.items()}


def _named(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key, value in metadata.items():
        tags = value if isinstance(value, (list, tuple)) else [value]
        if key not in NOT_SLICES:
            yield from (f"{key} {tag}" for tag in tags if isinstance(tag, (str, int)) and 0 < len(str(tag)) <= 40)


def significant_slices(
    members: Iterable[tuple[str, PairedMeasure]], by_turn: Mapping[TurnId, set[str]], alpha: float, *, two_sided: bool
) -> list[Slice]:
    """Return the slices in which a quality of a flow is worse, or with `two_sided` differs, the smallest p first.

    `members` are flows and paired measures. In all of them a conversation has the same number.
    """
    columns: list[np.ndarray] = []
    slices: list[tuple[str, str, PairedMeasure, np.ndarray, int]] = []
    for flow, paired in members:
        if paired.measure in COSTS or not paired.changed:
            continue
        for name, mask in _masks(paired, by_turn):
            inside = paired.conversation_numbers[mask]
            size = len(np.unique(inside))
            if size >= MIN_CONVERSATIONS and paired.differences[mask].any():
                columns.append(np.bincount(inside, weights=paired.losses[mask], minlength=paired.size))
                slices.append((name, flow, paired, mask, size))
    if not columns:
        return []
    tests = SignFlips(np.column_stack(columns), two_sided=two_sided, draws=MAX_FLIPS)
    can = tests.minimum_p_values() <= alpha
    significant, many = [], int(can.sum())
    adjusted = tests.test(can).p_adjusted.tolist()
    for (name, flow, paired, mask, size), p, testable in zip(slices, adjusted, can, strict=True):
        if testable and p < alpha:
            a, b = (float(side[mask].mean()) for side in (paired.a, paired.b))
            significant.append(Slice(name, flow, paired.measure.name, a, b, int(mask.sum()), size, p, many))
    return sorted(significant, key=lambda each: (each.p_adjusted, -abs(each.b - each.a)))


def _masks(paired: PairedMeasure, by_turn: Mapping[TurnId, set[str]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the slices of a measure with their masks, without slices that contain all turns."""
    own = [by_turn.get((conversation, turn), set()) for conversation, turn, _ in paired.keys]
    for name in sorted(set().union(*own)):
        mask = np.array([name in labels for labels in own])
        if not mask.all():
            yield name, mask


def hidden_in_overall(slices: Sequence[Slice], significant: Iterable[tuple[str, str]]) -> list[Slice]:
    """Return the slices of flows and measures without a significant total; `significant` names the others."""
    overall = {*significant}
    return [each for each in slices if (each.flow, each.measure) not in overall]
