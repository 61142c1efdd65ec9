"""The account of a run while it goes on: each turn is graded and written when it ends, each conversation is checked and
folded into the running sums. What is kept in memory is what is in flight.

A run that is continued is taken up from its folder, one conversation at a time. Conversations that are finished there
are folded in; what was begun and not finished counts for the bill, and else only if it is not begun again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import RunError
from agentlab.core.events import Event
from agentlab.core.messages import from_json
from agentlab.core.trace import Costs, Trace
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.grade.grader import Grader, checked_costs, ledger_error
from agentlab.evals.play.budget import Budget
from agentlab.evals.play.observer import OrderedFeed, RunObserver
from agentlab.evals.play.plan import Trial
from agentlab.evals.play.provider_failures import EarlierAnswers, first_provider_failure
from agentlab.evals.store.fold import FlowFold, Fold
from agentlab.evals.store.folder import TURNS, RunFolder
from agentlab.evals.store.ledger import LineIndex
from agentlab.evals.store.rows import RESTART_MARKER, UNKNOWN, Quarantined, TrialKey, TurnRow
from agentlab.evals.store.summary import costs_of
from agentlab.wire.queue import QueuedModel
from agentlab.workbench.turn_driver import TurnResult
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of a run, or of a share of it, which a worker sends back."""

    flows: Mapping[str, FlowFold]
    is_complete: bool
    is_spent: bool = False
    """Whether it is incomplete because the budget is spent."""
    quarantined: Sequence[Quarantined] = ()
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By model, as a summary tells them."""


class Earlier:
    """The conversations in a run folder, as they are there before anything is written."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path
        self._rows, self.ledger = LineIndex(folder.held(TURNS)), folder.ledger
        self.takes = dict(self.ledger.takes)
        for play, take in self._rows.takes.items():
            self.takes[play] = max(take, self.takes.get(play, 0))

    def trace(self, play: TrialKey) -> Trace:
        return self.ledger[play] if play in self.ledger else Trace(*play)

    def rows(self, play: TrialKey) -> list[TurnRow]:
        """The turns of its last take; of a turn that was graded anew, the last row."""
        found: dict[int, TurnRow] = {}
        for content in self._rows.read((play, self.takes[play])):
            try:
                row = from_json(TurnRow, content)
            except ValueError as problem:
                raise RunError(f"{self._path}: a turn of {play[1]}: {problem}") from None
            found[row.turn] = row
        return [row for number, row in sorted(found.items()) if number != RESTART_MARKER]

    def first_failure(self, play: TrialKey) -> int | None:
        """The first turn of its last take that failed because of the provider."""
        return first_provider_failure(self.rows(play)) if play in self.takes else None

    def is_finished(self, assigned: Trial) -> bool:
        """Whether all its turns are there, and add up."""
        if assigned.key not in self.takes:
            return False
        rows = self.rows(assigned.key)
        if not {row.turn for row in rows} >= {*assigned.conversation.scored_turns}:
            return False
        return not rows or not ledger_error(self.trace(assigned.key), rows, ended=True)


class RunState:
    """Of the conversations `planned`, as far as they are in `folder` and are being played; those of `datasets` are
    those of the whole run, so that every share of it numbers them alike. `watch` sees each that ends."""

    def __init__(
        self,
        bench: Workbench,
        datasets: Sequence[Dataset],
        planned: Sequence[Trial],
        folder: RunFolder,
        watch: RunObserver | None = None,
        *,
        keep_failures: bool = False,
    ) -> None:
        self._folder = folder
        self._earlier = Earlier(folder)
        self.budget = Budget(bench.spec.budget, bench.prices.cost)
        self._quarantined: dict[TrialKey, str] = {}
        """Conversations that do not add up, and why; they are played again when the run is continued."""
        self._finished = {each.key: each for each in planned if self._earlier.is_finished(each)}
        failed = {} if keep_failures else {key: self._earlier.first_failure(key) for key in self._finished}
        self._failed_at = {key: turn for key, turn in failed.items() if turn is not None}
        """The turn from which on a finished conversation is played again."""
        self._finished = {key: each for key, each in self._finished.items() if key not in self._failed_at}
        self.left = {each.key: each for each in planned if each.key not in self._finished}
        """What is still to be played to its end."""
        self.fold = Fold(
            conversation_name(dataset, each, datasets) for dataset in datasets for each in dataset.conversations
        )
        self._unfinished = self._earlier.takes.keys() - self._finished.keys()
        """Conversations that were begun in an earlier sitting, and not yet anew."""
        self._grader = Grader(
            bench.scorers, bench.embedder.embed, folder.path, embeds_at_once=bench.embeds_synchronously
        )
        self._open: dict[TrialKey, tuple[Trace, list[TurnRow]]] = {}
        self.follower = OrderedFeed(watch, [each.key for each in planned])

    async def resume(self, graders: Mapping[str, str]) -> None:
        """Fold in what earlier sittings left, graded anew where other `graders` gave the scores."""
        header = self._folder.header
        anew = header["graders"] != graders or UNKNOWN in graders.values()
        for trace in self._earlier.ledger.abandoned(self._earlier.takes):
            self._count(trace)
            self.fold.flows[trace.flow].add_abandoned(trace.events)
        for key in self._unfinished:
            self._count(self._earlier.trace(key))
        for key, assigned in self._finished.items():
            trace, rows = self._earlier.trace(key), self._earlier.rows(key)
            self._count(trace)
            if anew or any(row.scores is None for row in rows):
                rows = [await self._graded(row, assigned.conversation, trace) for row in rows]
            self.fold.add(trace, rows)
            self.follower.ended(key, rows)
        if header["graders"] != graders:
            # Only now: until then a run that is killed here is graded anew once more.
            self._folder.write_json("run.json", {**header, "graders": graders})

    def earlier_answers(self, play: Trial, model: QueuedModel) -> EarlierAnswers | None:
        """The answers to the turns before the one that failed; None of a conversation that is not played again."""
        until = self._failed_at.get(play.key)
        if until is None:
            return None
        self.fold.flows[play.key[0]].counts["asked_again"] += sum(t >= until for t in play.conversation.scored_turns)
        return EarlierAnswers(self._earlier.trace(play.key).events, until, model, play.epoch)

    def start_trial(self, play: TrialKey) -> Trace:
        """The trace of a conversation that is begun, perhaps anew."""
        trace = Trace(*play, take=self._earlier.takes.get(play, -1) + 1)
        if play in self._unfinished:
            self._unfinished.remove(play)
            self.fold.flows[play[0]].add_abandoned(self._earlier.trace(play).events)
            for row in self._earlier.rows(play)[:1]:
                said: dict[str, Any] = {"turn": RESTART_MARKER, "take": trace.take, "user": "", "reply": None}
                self._folder.append_turn(replace(row, **said))
        trace.listeners += [self._folder.ledger_writer(trace), self.budget.count]
        self._open[play] = trace, []
        return trace

    async def record_turn(self, play: Trial, trace: Trace, played: TurnResult) -> None:
        """Grade a turn and write its row."""
        took = time.perf_counter() - played.started_at
        events = trace.of_turn(played.number)
        row = TurnRow(
            flow=trace.flow,
            dataset=play.dataset.name,
            conversation=trace.conversation,
            turn=played.number,
            category=play.conversation.metadata.get("category"),
            epoch=trace.epoch,
            take=trace.take,
            user=played.asked.text,
            reply=played.reply,
            error=played.error,
            wall_seconds=took,
            **costs_of(events),
        )
        self._open[play.key][1].append(await self._graded(row, play.conversation, trace))

    def finish_trial(self, play: TrialKey) -> None:
        """Check its ledger, fold it in, and let go of it."""
        rows = self._fold(play, ended=True)
        self.left.pop(play, None)
        self.follower.ended(play, rows)

    def close(self, limits: Mapping[str, Mapping[str, Any]]) -> Played:
        """Fold in what was begun and did not end, and say what came of all; raises what was wrong with a scorer."""
        for play in list(self._open):
            self._fold(play, ended=False)
        for play in self._unfinished:
            trace, rows = self._earlier.trace(play), self._earlier.rows(play)
            self.fold.add(trace, rows, self._checked(trace, rows, ended=False))
        if self._grader.failure is not None:
            raise self._grader.failure
        is_complete = not self.left and not self._quarantined
        return Played(
            flows=dict(self.fold.flows),
            is_complete=is_complete,
            is_spent=not is_complete and self.budget.is_spent,
            quarantined=[Quarantined(*play, cause=cause) for play, cause in sorted(self._quarantined.items())],
            limits=limits,
        )

    def _fold(self, play: TrialKey, *, ended: bool) -> list[TurnRow]:
        trace, rows = self._open.pop(play)
        self.fold.add(trace, rows, self._checked(trace, rows, ended=ended))
        trace.listeners.append(self._on_late_event)
        return rows

    def _on_late_event(self, trace: Trace, event: Event) -> None:
        """Of a task that a flow left behind: no turn counts it."""
        self._quarantine(trace, "something came after its last turn had ended, which no turn counts")

    def _checked(self, trace: Trace, rows: Sequence[TurnRow], *, ended: bool) -> Costs | None:
        """What the conversation came to; it is set apart where that does not add up."""
        costs, fault = checked_costs(trace, rows, ended=ended)
        if fault:
            self._quarantine(trace, fault)
        return costs

    def _quarantine(self, trace: Trace, why: str) -> None:
        play = trace.flow, trace.conversation, trace.epoch
        if play not in self._quarantined:
            log.warning("%s is quarantined, and --resume plays it again: %s", "/".join(map(str, play)), why)
        self._quarantined.setdefault(play, why)

    async def _graded(self, row: TurnRow, conversation: Conversation, trace: Trace) -> TurnRow:
        """The row with its scores, as it then stands in the folder."""
        filled: list[Event] = []
        if isinstance(conversation, Question):
            filling = row.flow, ingest_name(row.dataset, conversation), row.epoch
            filled = (self._open[filling][0] if filling in self._open else self._earlier.trace(filling)).events
        scores = await self._grader.grade(conversation, row, trace, filled)
        row = replace(row, scores=scores)
        self._folder.append_turn(row)
        return row

    def _count(self, trace: Trace) -> None:
        for event in trace.events:
            self.budget.count(trace, event)
