"""Plan of a run: its trials, in the order in which they start, its partitions, and observers that may stop it.

An observer sees conversations in the planned order, not in the order they end; otherwise fast conversations would
decide. It sees a conversation once every flow has played it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question
from agentlab.evals.store.measures import TurnKey, Values, values_of
from agentlab.evals.store.rows import TrialKey, TurnRow
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench


class Stopped(Exception):
    """Raised to stop the run; a resumed run starts the unfinished conversation again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One conversation, one flow, one epoch."""

    variant: Variant
    dataset: Dataset
    conversation: Conversation
    name: str
    epoch: int

    @property
    def key(self) -> TrialKey:
        return self.variant.label, self.name, self.epoch


@dataclass(frozen=True)
class Partition:
    """One of `parts` partitions of a run: some of its conversations, with all flows and epochs."""

    number: int = 0
    parts: int = 1

    def of(self, dataset: Dataset) -> Iterator[Conversation]:
        """Yield the conversations of the partition; questions about one memory stay together."""
        groups: dict[str, int] = {}
        for conversation in dataset.conversations:
            group = conversation.memory_of if isinstance(conversation, Question) else conversation.id
            if groups.setdefault(group, len(groups)) % self.parts == self.number:
                yield conversation


WHOLE_RUN = Partition()


def assignments(
    bench: Workbench, datasets: Sequence[Dataset], partition: Partition, order: Sequence[str] = ()
) -> list[Trial]:
    """Return the trials of a partition; the conversations in `order` come first, in that order."""
    positions = {name: position for position, name in enumerate(order)}
    # Flows alternate on each conversation, so that a slower machine slows all flows equally.
    planned = [
        Trial(variant, dataset, conversation, conversation_name(dataset, conversation, datasets), epoch)
        for epoch in range(bench.spec.epochs)
        for dataset in datasets
        for conversation in partition.of(dataset)
        for variant in bench.variants
    ]
    return sorted(planned, key=lambda each: positions.get(each.name, len(positions)))


def turns_of(planned: Sequence[Trial]) -> int:
    return sum(len(each.conversation.scored_turns) for each in planned)


class RunObserver(Protocol):
    """Observes a running run, and may stop it."""

    order: Sequence[str]
    """Names of the conversations, in the order in which they are played and observed."""

    @property
    def plan(self) -> dict[str, Any]:
        """Settings fixed before the run; `run.json` stores them, and a resumed run must have the same."""

    def observe(self, conversation: str, flows: Mapping[str, Mapping[TurnKey, Values]]) -> bool:
        """Observe the turns of one more conversation; return True if the run may stop."""


class OrderedFeed:
    """Passes the conversations of a run to its observer, if there is one."""

    def __init__(self, observer: RunObserver | None, trials: Iterable[TrialKey]) -> None:
        self._observer = observer
        self._trials_of = Counter(name for _, name, _ in trials)
        """Conversation -> number of its trials."""
        self._left = deque(observer.order if observer else ())
        self._ended: defaultdict[str, dict[TrialKey, Sequence[TurnRow]]] = defaultdict(dict)
        self.should_stop = False

    def ended(self, key: TrialKey, rows: Sequence[TurnRow]) -> None:
        """Add the turns of an ended trial, and pass on every conversation that is complete."""
        if self._observer is None:
            return
        self._ended[key[1]][key] = rows
        while self._left and not self.should_stop and len(self._ended[self._left[0]]) == self._trials_of[self._left[0]]:
            name = self._left.popleft()
            played = [row for _, turns in sorted(self._ended.pop(name).items()) for row in turns]
            self.should_stop = self._observer.observe(name, values_of(played))
