"""State of a run in progress: each turn is graded and written when it ends, each conversation is checked and folded in.
Memory holds only the conversations in flight.

A resumed run reads its folder one conversation at a time and folds finished ones in. An unfinished one counts for the
costs; its turns count only if it does not start again. A conversation in which the provider failed starts again at that
turn.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import RateLimited, Refused, Retryable, RunError, ServerFault, Unreachable
from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import from_json
from agentlab.core.trace import Costs, Trace
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.grade.grader import Grader, checked_costs
from agentlab.evals.play.budget import Budget
from agentlab.evals.play.plan import OrderedFeed, RunObserver, Trial
from agentlab.evals.store.fold import FlowFold, Fold
from agentlab.evals.store.folder import TURNS, RunFolder
from agentlab.evals.store.ledger import LineIndex
from agentlab.evals.store.rows import RESTART_MARKER, UNKNOWN, Quarantined, TrialKey, TurnRow
from agentlab.evals.store.summary import costs_of
from agentlab.wire.keys import in_flight_key
from agentlab.wire.queue import QueuedModel
from agentlab.wire.recorder import Recorder
from agentlab.wire.recording_schema import Completed
from agentlab.workbench.turn_driver import TurnResult
from agentlab.workbench.workbench import Workbench

_ERRORS = tuple(f"{kind.__name__}:" for kind in (Retryable, RateLimited, Unreachable, ServerFault, Refused))
"""Temporary errors: outage, rate limit, account. An invalid request stays invalid."""


def first_provider_failure(rows: Iterable[TurnRow]) -> int | None:
    """Return the number of the first turn that failed because of the provider; None without one."""
    return next((row.turn for row in rows if (row.error or "").startswith(_ERRORS)), None)


class EarlierAnswers(Recorder):
    """Completions of an earlier attempt at a live conversation, before the turn that failed."""

    def __init__(self, events: Iterable[Event], until: int, model: QueuedModel, epoch: int) -> None:
        super().__init__()
        self._answers: defaultdict[str, list[Completed]] = defaultdict(list)
        for event in events:
            if isinstance(event, ModelCall) and event.turn < until and event.completion and event.error is None:
                key = in_flight_key(model.name, model.endpoint, event.request, epoch)
                entry = Completed(
                    key=key,
                    request={"messages": [], "tools": []},
                    repeat=len(self._answers[key]),
                    seconds=event.seconds,
                    completion=event.completion,
                )
                self._answers[key].append(entry)

    def look_up(self, key: str) -> Any:
        """Return the next unused completion of this key, in recorded order; None if none is left."""
        return self._answers[key].pop(0) if self._answers.get(key) else None


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Played:
    """Outcome of a run or of one partition; workers send it back."""

    flows: Mapping[str, FlowFold]
    is_complete: bool
    is_spent: bool = False
    """True if the run is incomplete because the budget is spent."""
    quarantined: Sequence[Quarantined] = ()
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model -> its rate limits, as in a summary."""


class Earlier:
    """Trials in a run folder, as they are before this process writes to it."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path
        self._rows, self.ledger = LineIndex(folder.open_files(TURNS)), folder.ledger
        self.last_attempts = dict(self.ledger.last_attempts)
        for key, attempt in self._rows.last_attempts.items():
            self.last_attempts[key] = max(attempt, self.last_attempts.get(key, 0))

    def trace(self, key: TrialKey) -> Trace:
        return self.ledger[key] if key in self.ledger else Trace(*key)

    def rows(self, key: TrialKey) -> list[TurnRow]:
        """Return the turns of the last attempt; for a regraded turn the last row."""
        latest: dict[int, TurnRow] = {}
        for content in self._rows.read((key, self.last_attempts[key])):
            try:
                row = from_json(TurnRow, content)
            except ValueError as problem:
                raise RunError(f"{self._path}: a turn of {key[1]}: {problem}") from None
            latest[row.turn] = row
        return [row for number, row in sorted(latest.items()) if number != RESTART_MARKER]

    def is_finished(self, trial: Trial) -> bool:
        """Return True if all turns of the trial are stored and add up."""
        if trial.key not in self.last_attempts:
            return False
        rows = self.rows(trial.key)
        if not {row.turn for row in rows} >= {*trial.conversation.scored_turns}:
            return False
        return not rows or not checked_costs(self.trace(trial.key), rows, ended=True)[1]


class RunState:
    """State of the trials `planned`, both stored in `folder` and in flight.

    `datasets` are those of the whole run, so that every partition numbers conversations alike. `observer` gets each
    trial that ends.
    """

    def __init__(
        self,
        bench: Workbench,
        datasets: Sequence[Dataset],
        planned: Sequence[Trial],
        folder: RunFolder,
        observer: RunObserver | None = None,
        *,
        keep_failures: bool = False,
    ) -> None:
        self._folder = folder
        self._earlier = Earlier(folder)
        self.budget = Budget(bench.spec.budget, bench.prices.cost)
        self._quarantined: dict[TrialKey, str] = {}
        """Trials that do not add up, and the cause; a resumed run plays them again."""
        self._finished = {each.key: each for each in planned if self._earlier.is_finished(each)}
        failed = (
            {} if keep_failures else {key: first_provider_failure(self._earlier.rows(key)) for key in self._finished}
        )
        self._failed_at = {key: turn for key, turn in failed.items() if turn is not None}
        """Finished trial -> first turn to play again, because the provider failed there."""
        self._finished = {key: each for key, each in self._finished.items() if key not in self._failed_at}
        self.left = {each.key: each for each in planned if each.key not in self._finished}
        """Trials that have not ended yet."""
        self.fold = Fold(
            conversation_name(dataset, each, datasets) for dataset in datasets for each in dataset.conversations
        )
        self._unfinished = self._earlier.last_attempts.keys() - self._finished.keys()
        """Trials that an earlier process left unfinished, and that have not started again."""
        self._grader = Grader(bench.scorers, bench.embedder, folder.path, embeds_at_once=bench.embeds_synchronously)
        self._open: dict[TrialKey, tuple[Trace, list[TurnRow]]] = {}
        self.follower = OrderedFeed(observer, [each.key for each in planned])

    async def resume(self, graders: Mapping[str, str]) -> None:
        """Add the results of earlier processes; regrade them if the scorers changed."""
        header = self._folder.header
        regrade = header["graders"] != graders or UNKNOWN in graders.values()
        for trace in self._earlier.ledger.abandoned(self._earlier.last_attempts):
            self._count(trace)
            self.fold.flows[trace.flow].add_abandoned(trace.events)
        for key in self._unfinished:
            self._count(self._earlier.trace(key))
        for key, trial in self._finished.items():
            trace, rows = self._earlier.trace(key), self._earlier.rows(key)
            self._count(trace)
            if regrade or any(row.scores is None for row in rows):
                rows = [await self._graded(row, trial.conversation, trace) for row in rows]
            self.fold.add(trace, rows)
            self.follower.ended(key, rows)
        if header["graders"] != graders:
            # Written last, so that a run that is killed before this line is regraded again.
            self._folder.write_json("run.json", {**header, "graders": graders})

    def earlier_answers(self, trial: Trial, model: QueuedModel) -> EarlierAnswers | None:
        """Return the answers before the turn that failed; None if the trial is not played again."""
        until = self._failed_at.get(trial.key)
        if until is None:
            return None
        self.fold.flows[trial.key[0]].counts["asked_again"] += sum(t >= until for t in trial.conversation.scored_turns)
        return EarlierAnswers(self._earlier.trace(trial.key).events, until, model, trial.epoch)

    def start_trial(self, key: TrialKey) -> Trace:
        """Return the trace of a trial that starts, perhaps again."""
        trace = Trace(*key, attempt=self._earlier.last_attempts.get(key, -1) + 1)
        if key in self._unfinished:
            self._unfinished.remove(key)
            self.fold.flows[key[0]].add_abandoned(self._earlier.trace(key).events)
            for row in self._earlier.rows(key)[:1]:
                marker: dict[str, Any] = {"turn": RESTART_MARKER, "take": trace.attempt, "user": "", "reply": None}
                self._folder.append_turn(replace(row, **marker))
        trace.listeners += [self._folder.ledger_writer(trace), self.budget.count]
        self._open[key] = trace, []
        return trace

    async def record_turn(self, trial: Trial, trace: Trace, result: TurnResult) -> None:
        """Grade a turn and write its row."""
        wall_seconds = time.perf_counter() - result.started_at
        events = trace.at(result.number)
        row = TurnRow(
            flow=trace.flow,
            dataset=trial.dataset.name,
            conversation=trace.conversation,
            turn=result.number,
            category=trial.conversation.metadata.get("category"),
            epoch=trace.epoch,
            take=trace.attempt,
            user=result.turn.text,
            reply=result.reply,
            error=result.error,
            wall_seconds=wall_seconds,
            **costs_of(events),
        )
        self._open[trial.key][1].append(await self._graded(row, trial.conversation, trace))

    def finish_trial(self, key: TrialKey) -> None:
        """Check the trial's ledger, fold the trial in, and release it."""
        rows = self._fold(key, ended=True)
        self.left.pop(key, None)
        self.follower.ended(key, rows)

    def close(self, limits: Mapping[str, Mapping[str, Any]]) -> Played:
        """Fold in unfinished trials and return the outcome; raises RunError if a scorer failed."""
        for key in list(self._open):
            self._fold(key, ended=False)
        for key in self._unfinished:
            trace, rows = self._earlier.trace(key), self._earlier.rows(key)
            self.fold.add(trace, rows, self._costs_of(trace, rows, ended=False))
        if self._grader.failure is not None:
            raise self._grader.failure
        is_complete = not self.left and not self._quarantined
        return Played(
            flows=dict(self.fold.flows),
            is_complete=is_complete,
            is_spent=not is_complete and self.budget.is_spent,
            quarantined=[Quarantined(*key, cause=cause) for key, cause in sorted(self._quarantined.items())],
            limits=limits,
        )

    def _fold(self, key: TrialKey, *, ended: bool) -> list[TurnRow]:
        trace, rows = self._open.pop(key)
        self.fold.add(trace, rows, self._costs_of(trace, rows, ended=ended))
        trace.listeners.append(self._on_late_event)
        return rows

    def _on_late_event(self, trace: Trace, event: Event) -> None:
        """Quarantine a trial whose background task emits an event after its last turn."""
        self._quarantine(trace, "an event came after its last turn had ended, so no turn counts it")

    def _costs_of(self, trace: Trace, rows: Sequence[TurnRow], *, ended: bool) -> Costs | None:
        """Return the costs of the trial; quarantine it if they do not add up."""
        costs, fault = checked_costs(trace, rows, ended=ended)
        if fault:
            self._quarantine(trace, fault)
        return costs

    def _quarantine(self, trace: Trace, cause: str) -> None:
        key = trace.flow, trace.conversation, trace.epoch
        if key not in self._quarantined:
            log.warning("%s is quarantined: %s; --resume plays it again", "/".join(map(str, key)), cause)
        self._quarantined.setdefault(key, cause)

    async def _graded(self, row: TurnRow, conversation: Conversation, trace: Trace) -> TurnRow:
        """Grade the row, append it to the folder and return it."""
        before: list[Event] = []
        if isinstance(conversation, Question):
            ingest = row.flow, ingest_name(row.dataset, conversation), row.epoch
            before = (self._open[ingest][0] if ingest in self._open else self._earlier.trace(ingest)).events
        scores = await self._grader.grade(conversation, row, trace, before)
        row = replace(row, scores=scores)
        self._folder.append_turn(row)
        return row

    def _count(self, trace: Trace) -> None:
        for event in trace.events:
            self.budget.count(trace, event)
