"""Running sums of a run: each conversation is folded in when it ends, and is not needed any more.

What comes out does not depend on the order in which conversations end, nor on how they were shared out: the parts of a
sum are kept, and rounded once when they are added up; values whose order matters to the last bit are put in the order
of their turns first.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UnsetType

from agentlab.core.constants import INGEST_FAILED, MEMORY_UNAVAILABLE, NOT_RECORDED
from agentlab.core.events import Event, ModelCall, Notice
from agentlab.core.trace import Costs, Totals, Trace, billed_totals
from agentlab.data.conversations import INGEST_PREFIX
from agentlab.evals.store.rows import TrialKey, TurnRow

NOT_RECORDED_REASON = "not recorded"
"""How the reason of a score begins that a replay could not work out."""


def _column() -> array[float]:
    """Room for the values of a measure, each after its conversation, epoch, turn and place among those of the turn."""
    return array("d")


def in_order(column: array[float]) -> np.ndarray:
    """A row of five numbers for each value of a measure, in the order of the turns."""
    rows = np.frombuffer(column).reshape(-1, 5)
    return rows[np.lexsort(rows[:, 2::-1].T)]


class FlowFold:
    """Of one flow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Of turns: `turns`, `errors`, `memory_tokens`, `memory_unavailable`, `fallbacks`, `untold` latencies; of calls
        `reused`, `new`, `untimed`; scores that are `ungraded`."""
        self.totals: list[Totals] = []
        self.billed: list[Totals] = []
        self.ingest: list[Totals] = []
        """What filling memories took, which is part of all sums, and stands apart here."""
        self.phases: defaultdict[str, list[Totals]] = defaultdict(list)
        self.ingest_counts: Counter[str] = Counter()
        self.steps: list[int | UnsetType | None] = []
        """Of retrieval, as the source of imported answers says."""
        self.latencies = _column()
        self.scores: defaultdict[str, array[float]] = defaultdict(_column)
        self.missed: list[tuple[TrialKey, list[str], dict[str, Any]]] = []
        """Conversations with calls that were not recorded: the causes, and the first of them."""

    def add(self, trace: Trace, rows: Sequence[TurnRow], rank: int, costs: Costs | None = None) -> None:
        """A conversation, or what there is of it: its events, and the turns that came to an end.

        `costs` are those of its events, where they are known.
        """
        costs = costs or Costs.of(trace.events)
        self.totals.append(costs.totals)
        for phase, part in costs.phases.items():
            self.phases[phase].append(part)
        if "fallback" in costs.phases:
            self.counts["fallbacks"] += len({event.turn for event in trace.events if event.phase == "fallback"})
        live = {event.origin for event in trace.events} == {"live"}
        self.billed.append(costs.totals if live else billed_totals(trace.events))
        self._take_reuse(trace)
        if trace.conversation.startswith(INGEST_PREFIX):
            notices = [event for event in trace.events if isinstance(event, Notice)]
            failed = sum(notice.name == INGEST_FAILED for notice in notices)
            away = {notice.turn for notice in notices if notice.name == MEMORY_UNAVAILABLE}
            self.ingest.append(costs.totals)
            self.ingest_counts.update(turns=len(trace.turns()), errors=failed, memory_unavailable=len(away))
        for row in rows:
            self._take_turn(row, rank)

    def take_imported(self, row: TurnRow, rank: int) -> None:
        """A turn that has no events: its totals are what its source says."""
        self.totals.append(row.totals)
        self.steps.append(row.retrieval_steps)
        self._take_turn(row, rank)

    def add_abandoned(self, events: Sequence[Event]) -> None:
        """A take that a later one replaced: nothing counts it but the bill."""
        self.billed.append(billed_totals(events))
        self.counts["new"] += self.billed[-1].llm_calls or 0

    def _take_turn(self, row: TurnRow, rank: int) -> None:
        self.counts["turns"] += 1
        self.counts["errors"] += row.error is not None
        self.counts["memory_tokens"] += row.memory_tokens or 0
        self.counts["memory_unavailable"] += row.memory_unavailable or 0
        self.counts["untold"] += row.latency_s is None
        self.latencies.extend((rank, row.epoch, row.turn, 0, row.latency_s or 0.0))
        for place, (metric, score) in enumerate((row.scores or {}).items()):
            value = math.nan if score.value is None else score.value
            self.scores[metric].extend((rank, row.epoch, row.turn, place, value))
            self.counts["ungraded"] += score.reason.startswith(NOT_RECORDED_REASON)

    def _take_reuse(self, trace: Trace) -> None:
        parents = {event.parent for event in trace.events}
        for event in trace.events:
            if isinstance(event, ModelCall):
                if event.completion is not None:
                    self.counts["reused" if event.origin == "replay" else "new"] += event.origin in ("replay", "live")
            # Work in this process is done anew; that its time is not recorded means that it came out otherwise.
            elif event.origin == "live" and event.duration_identity is not None and event.id not in parents:
                self.counts["untimed"] += 1
        if missed := missed_calls(trace):
            first = min(missed, key=lambda notice: notice.id)
            place = trace.flow, trace.conversation, trace.epoch
            where = dict(zip(("flow", "conversation", "epoch"), place, strict=True))
            told = {**where, "turn": first.turn, "cause": first.data["cause"], "why": first.text}
            self.missed.append((place, [str(notice.data["cause"]) for notice in missed], told))

    def merge(self, other: FlowFold) -> None:
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(theirs, dict):
                for key, part in theirs.items():
                    mine[key] += part
            else:
                mine += theirs


class Fold:
    """Of a run; `conversations` are the names of all it has, so that every shard numbers them alike."""

    def __init__(self, conversations: Iterable[str]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(sorted({*conversations}))}
        self.flows: defaultdict[str, FlowFold] = defaultdict(FlowFold)

    def add(self, trace: Trace, rows: Sequence[TurnRow], costs: Costs | None = None) -> None:
        self.flows[trace.flow].add(trace, rows, self._ranks.get(trace.conversation, 0), costs)

    def merge(self, flows: Mapping[str, FlowFold]) -> None:
        for label, flow in flows.items():
            self.flows[label].merge(flow)


def missed_calls(trace: Trace) -> list[Notice]:
    """The notice beside each call that was not recorded."""
    return [event for event in trace.events if isinstance(event, Notice) and event.name == NOT_RECORDED]
