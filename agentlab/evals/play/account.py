"""The account of a run while it goes on: each turn is graded and written when it ends, each conversation is checked and
folded into the running sums. What is kept in memory is what is in flight.

A run that is continued is taken up from its folder, one conversation at a time. Conversations that are finished there
are folded in; what was begun and not finished counts for the bill, and else only if it is not begun again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import RunError
from agentlab.core.events import Event
from agentlab.core.messages import from_json
from agentlab.core.trace import Costs, Trace
from agentlab.data.conversations import INGEST, Conversation
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.grade.fingerprints import UNKNOWN
from agentlab.evals.grade.grader import Grader, checked_costs, fault_of
from agentlab.evals.play.budget import Budget
from agentlab.evals.play.memories import Assignment
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import TURNS, RunFolder
from agentlab.evals.store.ledger import Lines
from agentlab.evals.store.rows import BEGUN_AGAIN, Play, Quarantined, TurnRow, place_of
from agentlab.evals.store.summary import costs_of
from agentlab.workbench.conversation import PlayedTurn
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)


class Account:
    """Of the conversations `plays`, as far as they are in `folder` and are being played; `names` are those of the
    whole run, so that every share of it numbers them alike."""

    def __init__(
        self, bench: Workbench, names: Iterable[str], plays: Iterable[Assignment], folder: RunFolder, budget: Budget
    ) -> None:
        self._folder = folder
        self._budget = budget
        self._rows, self._ledger = Lines(folder.held(TURNS)), folder.ledger
        self._takes = dict(self._ledger.takes)
        for play, take in self._rows.takes.items():
            self._takes[play] = max(take, self._takes.get(play, 0))
        self.quarantined: dict[Play, str] = {}
        """Conversations that do not add up, and why; they are played again when the run is continued."""
        self._finished: dict[Play, Assignment] = {}
        self._left = 0
        for assigned in plays:
            key, answered = assigned.key, set[int]()
            if key in self._takes:
                answered = {row.turn for row in self._rows_of(key)}
            ended = key in self._takes and answered >= {*assigned.conversation.scored_turns}
            if ended and not (answered and fault_of(self._trace_of(key), self._rows_of(key), ended=True)):
                self._finished[key] = assigned
            else:
                self._left += 1
        self.fold = Fold(names)
        self._cut = self._takes.keys() - self._finished.keys()
        """Conversations that were begun in an earlier sitting, and not yet anew."""
        self._grader = Grader(bench.scorers, bench.embedder.embed, folder.path, embeds_at_once=bench.embeds_at_once)
        self._open: dict[Play, tuple[Trace, list[TurnRow]]] = {}

    def is_finished(self, play: Play) -> bool:
        """Whether an earlier sitting has finished it."""
        return play in self._finished

    @property
    def finished(self) -> Iterable[Play]:
        """What earlier sittings have finished."""
        return self._finished

    @property
    def set_apart(self) -> list[Quarantined]:
        """The quarantined conversations, in an order that does not depend on when they ended."""
        return sorted((Quarantined(*play, cause=cause) for play, cause in self.quarantined.items()), key=place_of)

    @property
    def is_complete(self) -> bool:
        return self._left == 0 and not self.quarantined

    async def take_up(self, graders: Mapping[str, str], on_row: Callable[[TurnRow], None] | None) -> None:
        """Fold in what earlier sittings left, graded anew where other `graders` gave the scores.

        `on_row` is told of each turn of a conversation that is finished.
        """
        header = self._folder.header
        anew = header["graders"] != graders or UNKNOWN in graders.values()
        for trace in self._ledger.abandoned(self._takes):
            self._count(trace)
            self.fold.flows[trace.flow].abandon(trace.events)
        for key in self._cut:
            self._count(self._trace_of(key))
        for key, assigned in self._finished.items():
            trace, rows = self._trace_of(key), self._rows_of(key)
            self._count(trace)
            if anew or any(row.scores is None for row in rows):
                rows = [await self._graded(row, assigned.conversation, trace) for row in rows]
            self.fold.take(trace, rows)
            if on_row is not None:
                for row in rows:
                    on_row(row)
        if header["graders"] != graders:
            # Only now: until then a run that is killed here is graded anew once more.
            self._folder.write_json("run.json", {**header, "graders": graders})

    def begin(self, play: Play) -> Trace:
        """The trace of a conversation that is begun, perhaps anew."""
        trace = Trace(*play, take=self._takes.get(play, -1) + 1)
        if play in self._cut:
            self._cut.remove(play)
            self.fold.flows[play[0]].abandon(self._trace_of(play).events)
            for row in self._rows_of(play)[:1]:
                said: dict[str, Any] = {"turn": BEGUN_AGAIN, "take": trace.take, "user": "", "reply": None}
                self._folder.append_turn(replace(row, **said))
        trace.listeners += [self._folder.ledger_of(trace), self._budget.count]
        self._open[play] = trace, []
        return trace

    async def turn_ended(self, play: Assignment, trace: Trace, played: PlayedTurn) -> TurnRow:
        """Grade a turn and write its row."""
        took = time.perf_counter() - played.began
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
        row = await self._graded(row, play.conversation, trace)
        self._open[play.key][1].append(row)
        return row

    def conversation_ended(self, play: Play) -> None:
        """Check its ledger, fold it in, and let go of it."""
        self._fold(play, ended=True)
        self._left -= not play[1].startswith(INGEST)

    def close(self) -> None:
        """Fold in what was begun and did not end; raises what was wrong with a scorer."""
        for play in list(self._open):
            self._fold(play, ended=False)
        for play in self._cut:
            trace, rows = self._trace_of(play), self._rows_of(play)
            self.fold.take(trace, rows, self._checked(trace, rows, ended=False))
        if self._grader.failure is not None:
            raise self._grader.failure

    def let_go(self) -> None:
        """Write what was not written yet."""
        self._folder.flush()

    def _fold(self, play: Play, *, ended: bool) -> None:
        trace, rows = self._open.pop(play)
        self.fold.take(trace, rows, self._checked(trace, rows, ended=ended))
        trace.listeners.append(self._late)

    def _late(self, trace: Trace, event: Event) -> None:
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
        if play not in self.quarantined:
            log.warning("%s is quarantined, and --resume plays it again: %s", "/".join(map(str, play)), why)
        self.quarantined.setdefault(play, why)

    async def _graded(self, row: TurnRow, conversation: Conversation, trace: Trace) -> TurnRow:
        """The row with its scores, as it then stands in the folder."""
        filled: list[Event] = []
        if isinstance(conversation, Question):
            filling = row.flow, ingest_name(row.dataset, conversation), row.epoch
            filled = (self._open[filling][0] if filling in self._open else self._trace_of(filling)).events
        scores = await self._grader.grade(conversation, row, trace, filled)
        row = replace(row, scores=scores)
        self._folder.append_turn(row)
        return row

    def _count(self, trace: Trace) -> None:
        for event in trace.events:
            self._budget.count(trace, event)

    def _trace_of(self, play: Play) -> Trace:
        return self._ledger[play] if play in self._ledger else Trace(*play)

    def _rows_of(self, play: Play) -> list[TurnRow]:
        """The turns of its last take in the folder; of a turn that was graded anew, the last row."""
        found: dict[int, TurnRow] = {}
        for content in self._rows.read((play, self._takes[play])):
            try:
                row = from_json(TurnRow, content)
            except ValueError as problem:
                raise RunError(f"{self._folder.path}: a turn of {play[1]}: {problem}") from None
            found[row.turn] = row
        return [row for number, row in sorted(found.items()) if number != BEGUN_AGAIN]
