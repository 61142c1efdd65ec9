"""Running sums of a run: each conversation is folded in when it ends, and then released.

The result depends neither on the order in which conversations end nor on their partition. A sum keeps its parts and is
rounded once at the end. Values whose order changes the last bit are sorted by turn first.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UnsetType

from agentlab.core.constants import INGEST_FAILED, LOOKUP_DOCUMENTS, MEMORY_UNAVAILABLE, NOT_RECORDED
from agentlab.core.events import ANSWERING, Event, ModelCall, Notice, Search
from agentlab.core.trace import Costs, Totals, Trace, billed_totals
from agentlab.data.conversations import INGEST_PREFIX
from agentlab.evals.store.measures import ABSTAINING
from agentlab.evals.store.rows import TrialKey, TurnRow

NOT_RECORDED_REASON = "not recorded"
"""Prefix of the reason of a score that a replay could not compute."""


def _column() -> array[float]:
    """Return an empty array for rows of conversation, epoch, turn, position in the turn, and value."""
    return array("d")


def _can_search(event: Event) -> bool:
    """Return True for a search, and for a call of a model that could have asked for one."""
    offered = event.request.tools if isinstance(event, ModelCall) else ()
    return isinstance(event, Search) or any(tool.name == LOOKUP_DOCUMENTS for tool in offered)


def in_order(column: array[float]) -> np.ndarray:
    """Return the column as an (n, 5) array, sorted by conversation, epoch and turn."""
    rows = np.frombuffer(column).reshape(-1, 5)
    return rows[np.lexsort(rows[:, 2::-1].T)]


class FlowFold:
    """Running sums of one flow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Turns: `turns`, `errors`, `memory_tokens`, `memory_unavailable`, `fallbacks`, `unknown_latencies`,
        `asked_again` after a failure of the provider. Conversations: `can_search`.
        Calls: `reused`, `new`, `untimed`. Scores: `ungraded`."""
        self.stopped: Counter[str] = Counter()
        """Replies that are not whole, by cause."""
        self.totals: list[Totals] = []
        self.billed: list[Totals] = []
        self.ingest: list[Totals] = []
        """Costs of filling memories; `totals` includes them."""
        self.phases: defaultdict[str, list[Totals]] = defaultdict(list)
        self.ingest_counts: Counter[str] = Counter()
        self.steps: list[int | UnsetType | None] = []
        """Retrieval steps of imported answers, as their source reports them."""
        self.latencies = _column()
        self.scores: defaultdict[str, array[float]] = defaultdict(_column)
        self.misses: list[tuple[TrialKey, list[str], dict[str, Any]]] = []
        """Trials with recording misses: their causes, and the first miss."""

    def add(self, trace: Trace, rows: Sequence[TurnRow], rank: int, costs: Costs | None = None) -> None:
        """Fold in the events and the ended turns of a trial; `costs` are those of its events, if known."""
        costs = costs or Costs.of(trace.events)
        self.totals.append(costs.totals)
        for phase, part in costs.phases.items():
            self.phases[phase].append(part)
        if "fallback" in costs.phases:
            self.counts["fallbacks"] += len({event.turn for event in trace.events if event.phase == "fallback"})
        self.stopped.update(call.stop for call in reply_calls(trace).values() if call.stop)
        self.counts["can_search"] += any(map(_can_search, trace.events))
        live = {event.origin for event in trace.events} == {"live"}
        self.billed.append(costs.totals if live else billed_totals(trace.events))
        self._add_reuse(trace)
        if trace.conversation.startswith(INGEST_PREFIX):
            notices = [event for event in trace.events if isinstance(event, Notice)]
            failed = sum(notice.name == INGEST_FAILED for notice in notices)
            unavailable = {notice.turn for notice in notices if notice.name == MEMORY_UNAVAILABLE}
            self.ingest.append(costs.totals)
            self.ingest_counts.update(turns=len(trace.turns()), errors=failed, memory_unavailable=len(unavailable))
        for row in rows:
            self._add_turn(row, rank)

    def add_imported(self, row: TurnRow, rank: int) -> None:
        """Fold in an imported turn, which has no events; its source reports the totals."""
        self.totals.append(row.totals)
        self.steps.append(row.retrieval_steps)
        self._add_turn(row, rank)

    def add_abandoned(self, events: Sequence[Event]) -> None:
        """Fold in an attempt that a later one replaced: only the billed sums count it."""
        self.billed.append(billed_totals(events))
        self.counts["new"] += self.billed[-1].llm_calls or 0

    def _add_turn(self, row: TurnRow, rank: int) -> None:
        self.counts["turns"] += 1
        self.counts["errors"] += row.error is not None
        self.counts["memory_tokens"] += row.memory_tokens or 0
        self.counts["memory_unavailable"] += row.memory_unavailable or 0
        self.counts["unknown_latencies"] += row.latency_s is None
        self.latencies.extend((rank, row.epoch, row.turn, 0, row.latency_s or 0.0))
        for position, (metric, score) in enumerate((row.scores or {}).items()):
            unknown = math.inf if metric in ABSTAINING else math.nan  # infinite: the turn is not decided
            value = unknown if score.value is None else score.value
            self.scores[metric].extend((rank, row.epoch, row.turn, position, value))
            self.counts["ungraded"] += score.reason.startswith(NOT_RECORDED_REASON)

    def _add_reuse(self, trace: Trace) -> None:
        parents = {event.parent for event in trace.events}
        for event in trace.events:
            if isinstance(event, ModelCall):
                if event.completion is not None:
                    self.counts["reused" if event.origin == "replay" else "new"] += event.origin in ("replay", "live")
            # A replay repeats local work. If its recording is missing, its outcome differs.
            elif event.origin == "live" and event.duration_identity is not None and event.id not in parents:
                self.counts["untimed"] += 1
        if notices := recording_misses(trace):
            first = min(notices, key=lambda notice: notice.id)
            trial = trace.flow, trace.conversation, trace.epoch
            names = dict(zip(("flow", "conversation", "epoch"), trial, strict=True))
            row = {**names, "turn": first.turn, "cause": first.data["cause"], "why": first.text}
            self.misses.append((trial, [str(notice.data["cause"]) for notice in notices], row))

    def merge(self, other: FlowFold) -> None:
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            if isinstance(theirs, dict):
                for key, part in theirs.items():
                    mine[key] += part
            else:
                mine += theirs


class Fold:
    """Running sums of a run; every shard gets all names in `conversations`, so that all number them alike."""

    def __init__(self, conversations: Iterable[str]) -> None:
        self._ranks = {name: rank for rank, name in enumerate(sorted({*conversations}))}
        self.flows: defaultdict[str, FlowFold] = defaultdict(FlowFold)

    def add(self, trace: Trace, rows: Sequence[TurnRow], costs: Costs | None = None) -> None:
        self.flows[trace.flow].add(trace, rows, self._ranks.get(trace.conversation, 0), costs)

    def merge(self, flows: Mapping[str, FlowFold]) -> None:
        for label, flow in flows.items():
            self.flows[label].merge(flow)


def reply_calls(trace: Trace) -> dict[int, ModelCall]:
    """Return the last call of each turn that wrote a reply."""
    return {e.turn: e for e in trace.events if isinstance(e, ModelCall) and e.phase in ANSWERING}


def recording_misses(trace: Trace) -> list[Notice]:
    """Return the notice of each call that was not recorded."""
    return [event for event in trace.events if isinstance(event, Notice) and event.name == NOT_RECORDED]
