"""Running sums of a run: each conversation is folded in when it ends, and is not needed any more.

What comes out does not depend on the order in which conversations end, nor on how they were shared out: sums are exact
until they are read, and values whose order matters to the last bit are put in the order of their turns first.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict, astuple

from agentlab.core.events import Event, ModelCall, Notice
from agentlab.core.names import INGEST_FAILED, MEMORY_UNAVAILABLE, NOT_RECORDED
from agentlab.core.trace import Costs, Totals, Trace, billed
from agentlab.data.conversations import INGEST
from agentlab.evals.store.rows import Play, TurnRow

UNGRADED = "not recorded"
"""How the reason of a score begins that a replay could not work out."""
_TURN_BITS, _EPOCH_BITS = 24, 16


class Exact:
    """A sum that is rounded once, when it is read; None once a part of it is unknown.

    Partial sums that do not overlap (Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997), as in `math.fsum`.
    """

    __slots__ = ("_floats", "_is_float", "_known", "_whole")

    def __init__(self, start: float = 0) -> None:
        """`start` is 0 or 0.0: what the sum is as long as nothing was added."""
        self._floats: list[float] = []
        self._whole = 0
        self._is_float, self._known = isinstance(start, float), True

    def add(self, number: float | None) -> None:
        if number is None:
            self._known = False
        elif isinstance(number, float):
            self._is_float = True
            if number:
                self._add(number)
        else:
            self._whole += number

    def _add(self, number: float) -> None:
        left = []
        for part in self._floats:
            large, small = (number, part) if abs(number) >= abs(part) else (part, number)
            number = large + small
            if rest := small - (number - large):
                left.append(rest)
        self._floats = [*left, number]

    def merge(self, other: Exact) -> None:
        self._whole += other._whole
        self._is_float |= other._is_float
        self._known &= other._known
        for part in other._floats:
            self._add(part)

    @property
    def value(self) -> Any:
        if not self._known:
            return None
        return math.fsum([*self._floats, self._whole]) if self._is_float else self._whole


class Sum:
    """Of totals, field by field."""

    def __init__(self) -> None:
        self._fields = {name: Exact(start) for name, start in asdict(Totals()).items()}

    def add(self, totals: Totals) -> None:
        for exact, number in zip(self._fields.values(), astuple(totals), strict=True):
            if number != 0:
                exact.add(number)

    def merge(self, other: Sum) -> None:
        for name, exact in self._fields.items():
            exact.merge(other._fields[name])

    @property
    def totals(self) -> Totals:
        return Totals(**{name: exact.value for name, exact in self._fields.items()})


class Column:
    """Values of turns, with the place of each in the order of all."""

    def __init__(self) -> None:
        self._places, self._values = array("q"), array("d")

    def add(self, place: int, value: float) -> None:
        self._places.append(place)
        self._values.append(value)

    def merge(self, other: Column) -> None:
        self._places.extend(other._places)
        self._values.extend(other._values)

    def __len__(self) -> int:
        return len(self._values)

    def in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """The values, and the number of each one's conversation; shape (n,) both."""
        places = np.frombuffer(self._places, dtype=np.int64)
        order = np.argsort(places, kind="stable")
        values = np.frombuffer(self._values, dtype=np.float64)
        return values[order], places[order] >> (_TURN_BITS + _EPOCH_BITS)


class FlowFold:
    """Of one flow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Of turns: `turns`, `errors`, `memory_tokens`, `memory_unavailable`, `fallbacks`; of calls `reused`, `new`."""
        self.totals, self.billed = Sum(), Sum()
        self.phases: defaultdict[str, Sum] = defaultdict(Sum)
        self.filled = 0
        """Memories that the flow filled itself; what that took is part of all sums, and stands apart in these."""
        self.ingest, self.ingest_counts = Sum(), Counter[str]()
        self.latencies = Column()
        self.scores: defaultdict[str, Column] = defaultdict(Column)
        self.first_scored: dict[str, tuple[int, int]] = {}
        """Where a metric first appears: the place of the turn, and the metric's in its row."""
        self.missed: list[tuple[Play, list[str], dict[str, Any]]] = []
        """Conversations with calls that were not recorded: the causes, and the first of them."""
        self.untimed = self.ungraded = 0

    def take(self, trace: Trace, rows: Sequence[TurnRow], rank: int, costs: Costs | None = None) -> None:
        """A conversation, or what there is of it: its events, and the turns that came to an end.

        `costs` are those of its events, where they are known.
        """
        costs = costs or Costs.of(trace.events)
        self.totals.add(costs.totals)
        for phase, part in costs.phases.items():
            self.phases[phase].add(part)
        if "fallback" in costs.phases:
            self.counts["fallbacks"] += len({event.turn for event in trace.events if event.phase == "fallback"})
        if {event.origin for event in trace.events} == {"live"}:
            self.billed.add(costs.totals)
        else:
            self.bill(trace.events)
        self._take_reuse(trace)
        if trace.conversation.startswith(INGEST):
            self._take_ingest(trace)
        for row in rows:
            self._take_turn(row, (rank << _EPOCH_BITS | row.epoch) << _TURN_BITS | row.turn)

    def bill(self, events: Iterable[Event]) -> None:
        """What was paid for: all that was asked for just now."""
        self.billed.add(billed(events))

    def abandon(self, events: Sequence[Event]) -> None:
        """A take that a later one replaced: nothing counts it but the bill."""
        self.bill(events)
        self.counts["new"] += billed(events).llm_calls or 0

    def _take_turn(self, row: TurnRow, place: int) -> None:
        self.counts["turns"] += 1
        self.counts["errors"] += row.error is not None
        self.counts["memory_tokens"] += row.memory_tokens or 0
        self.counts["memory_unavailable"] += row.memory_unavailable or 0
        self.latencies.add(place, row.latency_s or 0.0)
        for position, (metric, score) in enumerate((row.scores or {}).items()):
            self.scores[metric].add(place, math.nan if score.value is None else score.value)
            first = self.first_scored.get(metric)
            if first is None or place < first[0]:
                self.first_scored[metric] = place, position
            self.ungraded += score.reason.startswith(UNGRADED)

    def _take_reuse(self, trace: Trace) -> None:
        parents = {event.parent for event in trace.events}
        for event in trace.events:
            if isinstance(event, ModelCall):
                if event.completion is not None:
                    self.counts["reused" if event.origin == "replay" else "new"] += event.origin in ("replay", "live")
            # Work in this process is done anew; that its time is not recorded means that it came out otherwise.
            elif event.origin == "live" and event.work is not None and event.id not in parents:
                self.untimed += 1
        if missed := missed_calls(trace):
            first = min(missed, key=lambda notice: notice.id)
            where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "turn": first.turn}
            causes = [str(notice.data["cause"]) for notice in missed]
            place = trace.flow, trace.conversation, trace.epoch
            self.missed.append((place, causes, {**where, "cause": first.data["cause"], "why": first.text}))

    def _take_ingest(self, trace: Trace) -> None:
        notices = [event for event in trace.events if isinstance(event, Notice)]
        self.filled += 1
        self.ingest.add(trace.totals())
        self.ingest_counts["turns"] += len(trace.turns())
        self.ingest_counts["errors"] += sum(notice.name == INGEST_FAILED for notice in notices)
        away = {notice.turn for notice in notices if notice.name == MEMORY_UNAVAILABLE}
        self.ingest_counts["memory_unavailable"] += len(away)

    def merge(self, other: FlowFold) -> None:
        self.counts.update(other.counts)
        self.ingest_counts.update(other.ingest_counts)
        for name in ("totals", "billed", "ingest", "latencies"):
            getattr(self, name).merge(getattr(other, name))
        for phase, part in other.phases.items():
            self.phases[phase].merge(part)
        for metric, column in other.scores.items():
            self.scores[metric].merge(column)
            self.first_scored[metric] = min(
                self.first_scored.get(metric, other.first_scored[metric]), other.first_scored[metric]
            )
        self.missed += other.missed
        self.filled += other.filled
        self.untimed += other.untimed
        self.ungraded += other.ungraded


class Fold:
    """Of a run; `conversations` are the names of all it has, so that every shard numbers them alike."""

    def __init__(self, conversations: Iterable[str]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(sorted({*conversations}))}
        self.flows: defaultdict[str, FlowFold] = defaultdict(FlowFold)

    def take(self, trace: Trace, rows: Sequence[TurnRow], costs: Costs | None = None) -> None:
        self.flows[trace.flow].take(trace, rows, self._ranks.get(trace.conversation, 0), costs)

    def merge(self, flows: Mapping[str, FlowFold]) -> None:
        for label, flow in flows.items():
            self.flows[label].merge(flow)


def missed_calls(trace: Trace) -> list[Notice]:
    """The notice beside each call that was not recorded."""
    return [event for event in trace.events if isinstance(event, Notice) and event.name == NOT_RECORDED]
