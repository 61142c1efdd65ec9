"""Plan of a run: its trials, in the order in which they start, and its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question
from agentlab.evals.store.rows import TrialKey
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
