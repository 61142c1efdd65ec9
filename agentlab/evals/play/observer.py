"""Observers of a run, which see ended conversations in an order fixed before the run starts.

An observer may stop a run. It sees conversations in the planned order, not in the order they end; otherwise fast
conversations would decide. It sees a conversation once every flow has played it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agentlab.evals.store.measures import TurnKey, Values, values_of
from agentlab.evals.store.rows import TrialKey, TurnRow


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

    def __init__(self, watch: RunObserver | None, trials: Iterable[TrialKey]) -> None:
        self._watch = watch
        self._trials_of = Counter(name for _, name, _ in trials)
        """Conversation -> number of its trials."""
        self._left = deque(watch.order if watch else ())
        self._ended: defaultdict[str, dict[TrialKey, Sequence[TurnRow]]] = defaultdict(dict)
        self.should_stop = False

    def ended(self, key: TrialKey, rows: Sequence[TurnRow]) -> None:
        """Add the turns of an ended trial, and pass on every conversation that is complete."""
        if self._watch is None:
            return
        self._ended[key[1]][key] = rows
        while self._left and not self.should_stop and len(self._ended[self._left[0]]) == self._trials_of[self._left[0]]:
            name = self._left.popleft()
            played = [row for _, turns in sorted(self._ended.pop(name).items()) for row in turns]
            self.should_stop = self._watch.observe(name, values_of(played))
