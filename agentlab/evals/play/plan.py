"""Who plays which conversation, in the order in which they begin; a share of a run has a part of the conversations."""

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
    """The run stops; the conversation that is under way begins again when it is continued."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One conversation to be played through one flow."""

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
    """One of `parts` equal parts of a run: its conversations, each with all flows and epochs."""

    number: int = 0
    parts: int = 1

    def of(self, dataset: Dataset) -> Iterator[Conversation]:
        """Questions about one memory stay together, so that it is filled once."""
        groups: dict[str, int] = {}
        for conversation in dataset.conversations:
            about = conversation.memory_of if isinstance(conversation, Question) else conversation.id
            if groups.setdefault(about, len(groups)) % self.parts == self.number:
                yield conversation


WHOLE_RUN = Partition()


def assignments(
    bench: Workbench, datasets: Sequence[Dataset], share: Partition, order: Sequence[str] = ()
) -> list[Trial]:
    """What is to be played of a run; the conversations that `order` names come first, in that order."""
    positions = {name: position for position, name in enumerate(order)}
    # Flows take turns on each conversation, so that a machine that slows down slows all of them.
    planned = [
        Trial(variant, dataset, conversation, conversation_name(dataset, conversation, datasets), epoch)
        for epoch in range(bench.spec.epochs)
        for dataset in datasets
        for conversation in share.of(dataset)
        for variant in bench.variants
    ]
    return sorted(planned, key=lambda each: positions.get(each.name, len(positions)))


def turns_of(planned: Sequence[Trial]) -> int:
    return sum(len(each.conversation.scored_turns) for each in planned)
