"""Conversations as they end, with their scores, handed on in an order that was fixed before the first was played.

Whoever watches a run may stop it. What it sees must not depend on how long conversations take, or the ones that end
first would decide: so a conversation is handed on once every flow has played it and all before it were handed on.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agentlab.evals.store.measures import TurnKey, Values, values_of
from agentlab.evals.store.rows import TrialKey, TurnRow


class RunObserver(Protocol):
    """Looks at a run while it goes on."""

    order: Sequence[str]
    """The conversations, by name, as they are to be played and handed on."""

    @property
    def plan(self) -> dict[str, Any]:
        """What was decided before the run; `run.json` keeps it, and a run is continued with no other."""

    def observe(self, conversation: str, flows: Mapping[str, Mapping[TurnKey, Values]]) -> bool:
        """Take the turns of one more conversation; True where the run may stop."""


class OrderedFeed:
    """Hands the conversations of a run to its watch, if it has one."""

    def __init__(self, watch: RunObserver | None, plays: Iterable[TrialKey]) -> None:
        self._watch = watch
        self._due = Counter(name for _, name, _ in plays)
        """How often each conversation is played."""
        self._left = deque(watch.order if watch else ())
        self._ended: defaultdict[str, dict[TrialKey, Sequence[TurnRow]]] = defaultdict(dict)
        self.should_stop = False

    def ended(self, play: TrialKey, rows: Sequence[TurnRow]) -> None:
        """Take the turns of a conversation that one flow has played."""
        if self._watch is None:
            return
        self._ended[play[1]][play] = rows
        while self._left and not self.should_stop and len(self._ended[self._left[0]]) == self._due[self._left[0]]:
            name = self._left.popleft()
            played = [row for _, turns in sorted(self._ended.pop(name).items()) for row in turns]
            self.should_stop = self._watch.observe(name, values_of(played))
