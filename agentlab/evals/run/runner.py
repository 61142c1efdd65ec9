"""Plays every conversation through every flow and writes down what happens, turn by turn.

    run = await run(bench, out=Path("results/first"))

A turn that raises is a failed turn: it keeps what it cost, scores 0 and is never dropped. Conversations are independent
of each other; the turns of one come in order. A killed run is continued with `resume=True`: finished conversations are
kept, the others begin again as a new take. So is one that stopped because its budget was spent or the model down.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agentlab.core.errors import ConfigError, Retryable, RunError
from agentlab.core.events import Notice
from agentlab.core.files import is_out_of_room
from agentlab.core.messages import ToolSpec, UserTurn
from agentlab.core.names import MEMORY_UNAVAILABLE
from agentlab.core.stream import Item
from agentlab.core.trace import Trace
from agentlab.data.datasets import Dataset, name_of
from agentlab.evals.results.grading import Grader, finish
from agentlab.evals.results.rows import Play, TurnRow
from agentlab.evals.results.run import Run
from agentlab.evals.run.budget import Budget
from agentlab.evals.run.folder import RunFolder, locked, run_log
from agentlab.evals.run.memories import Assignment, BudgetSpent, Memories
from agentlab.evals.run.opening import check_run, open_folder
from agentlab.evals.run.watching import Follower, Watch
from agentlab.session.session import Session
from agentlab.tools.stub import StubTools
from agentlab.workbench.conversation import PlayedTurn, TurnDriver, log_failure
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
MOST_UNANSWERED = 10
"""A model that was asked in vain for so many turns is down: going on would only make failed turns of the others."""


class _Stopped(Exception):
    """The run stops; the conversation that is under way begins again when it is continued."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Handed to `on_progress` before the first turn and after each one."""

    done: int
    total: int
    failed: int
    seconds_left: float | None = None
    """At the pace of the last turns; None before the first one is done."""
    label: str = ""


async def run(
    bench: Workbench,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    on_event: Callable[[Trace, Item], None] | None = None,
    watch: Watch | None = None,
) -> Run:
    """Run the spec into the folder `out` (default `results/<run id>`) and return the finished run.

    With `watch` conversations are played in its order, until it says that the run may stop.

    Raises ConfigError where flows, data and budget do not fit together, before anything is written.
    """
    datasets = bench.datasets()
    check_run(bench, datasets, resume)
    if resume and out is None:
        raise ConfigError("to resume, name the folder of the run to go on with: --out DIR")
    run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{bench.spec.name}"
    path = Path(out) if out is not None else Path("results") / run_id
    while out is None and path.exists():  # another one began in the same second
        path = path.with_name(f"{path.name}-again")
    with run_log() as log_to:
        # What is broken in the tools of a data folder ends the run while there is no folder of its own yet.
        if not all(c.tools for d in datasets for c in d.conversations):
            for variant in bench.variants:
                await bench.tool_managers(variant)
        with locked(path):
            folder = open_folder(bench, datasets, path, resume, watch.plan if watch else None)
            log_to(folder.path)
            grader = Grader(path, datasets, bench.scorers, bench.embedder.embed)
            runner = _Runner(bench, datasets, folder, on_progress, on_event)
            await runner.play_all(watch, grader)
            return await finish(folder, datasets, grader, complete=runner.is_complete)


class _Runner:
    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        on_event: Callable[[Trace, Item], None] | None,
    ) -> None:
        self._bench = bench
        self._folder = folder
        self._on_event = on_event
        # Flows take turns on each conversation, so that a machine that slows down slows all of them.
        self._plays = [
            Assignment(variant, dataset, conversation, name_of(dataset, conversation, datasets), epoch)
            for epoch in range(bench.spec.epochs)
            for dataset in datasets
            for conversation in dataset.conversations
            for variant in bench.variants
        ]
        self._takes = folder.played.takes
        finished = self._finished()
        self._left = [play for play in self._plays if play.key not in finished]
        # A conversation that was cut off begins anew, and is paid for all the same.
        played = [event for trace in folder.played.traces.values() for event in trace.events]
        self._budget = Budget(bench.spec.budget, [*played, *(event for _, event in folder.played.abandoned)])
        self._unanswered = 0
        """Turns in a row, of whatever conversation, that failed because the model could not be reached."""
        self._follower: Follower | None = None
        self._memories = Memories(bench, self._begin, lambda: self._budget.is_spent)
        self._pace = _Pace(sum(len(play.conversation.scored_turns) for play in self._left), on_progress)

    @property
    def is_complete(self) -> bool:
        return {play.key for play in self._plays} <= self._finished()

    def _finished(self) -> set[Play]:
        done: dict[Play, set[int]] = defaultdict(set)
        for row in self._folder.played.turns:
            done[row.play].add(row.turn)
        return {play.key for play in self._plays if set(play.conversation.scored_turns) <= done[play.key]}

    async def _follow(self, watch: Watch, grader: Grader) -> None:
        """Put the conversations into the order of `watch`, and hand it those that were played before."""
        self._follower = Follower(watch, grader, [play.key for play in self._plays])
        place = {name: number for number, name in enumerate(watch.order)}
        self._left.sort(key=lambda play: place.get(play.name, len(place)))
        played, finished = self._folder.played, self._finished()
        for trace in played.traces.values():
            self._follower.begun(trace)
        for row in played.turns:
            if row.play in finished:
                self._follower.written(row)
        await self._follower.finished(*finished)

    @property
    def _is_decided(self) -> bool:
        return self._follower is not None and self._follower.is_decided

    async def play_all(self, watch: Watch | None, grader: Grader) -> None:
        if watch is not None:
            await self._follow(watch, grader)
        for play in self._left:
            await self._bench.model(play.variant.model)
            await self._bench.index(play.dataset.documents, play.variant.retrieval, self._pace.report_indexing)
            self._memories.expect(play)
        self._pace.begin()
        waiting = iter(self._left)

        async def worker() -> None:
            for play in waiting:
                if self._is_decided or self._budget.is_spent or self._is_down:
                    return
                try:
                    await self._play(play)
                    if self._follower is not None:
                        await self._follower.finished(play.key)
                except (BudgetSpent, _Stopped):
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._bench.spec.concurrency, len(self._left))):
                    group.create_task(worker())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await self._memories.close()

    @property
    def _is_down(self) -> bool:
        return self._unanswered >= MOST_UNANSWERED

    def _begin(self, key: Play) -> Trace:
        trace = Trace(*key, take=self._takes.get(key, -1) + 1)
        trace.listeners += [self._folder.append_event, self._budget.count]
        if self._follower is not None:
            self._follower.begun(trace)
        return trace

    async def _play(self, play: Assignment) -> None:
        index = await self._bench.index(play.dataset.documents, play.variant.retrieval)
        conversation = play.conversation
        stub = StubTools(
            [ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in conversation.tools]
        )
        today = conversation.metadata.get("today")
        async with self._memories.memory(play) as (memory, folder):
            session = await self._bench.session(
                play.variant,
                self._begin(play.key),
                index=index,
                tools=stub.tools,
                memory=memory,
                folder=folder,
                now=datetime.fromisoformat(today) if today else None,
            )
            if self._on_event is not None:
                session.stream.on("*", functools.partial(self._on_event, session.trace))
            await self._turns(play, session, stub)

    async def _turns(self, play: Assignment, session: Session, stub: StubTools) -> None:
        driver = TurnDriver(session)
        part: str | None = None
        for number, turn in enumerate(play.conversation.turns):
            if turn.session != part and number > 0:
                session.forget_history()
            part = turn.session
            with contextlib.suppress(ValueError):  # not every session is named by its date
                session.now = datetime.fromisoformat(part or "")
            if not turn.scored:
                session.add_unscored(turn.user, turn.reference_answers[0] if turn.reference_answers else None)
                continue
            stub.begin_turn([result.model_dump() for result in turn.tool_results])
            speaker = turn.speaker
            asked = UserTurn(
                text=turn.user,
                speaker_id=speaker.id if speaker else None,
                speaker_name=speaker.name if speaker else None,
                session=turn.session,
            )
            moment = turn.metadata.get("now")
            now = datetime.fromisoformat(moment) if moment else None
            played = await driver.play(play.variant.respond, number, asked, now=now)
            await driver.finish()
            self._check_room(session, played)
            self._unanswered = self._unanswered + 1 if isinstance(played.failure, Retryable) else 0
            if self._is_down:
                if self._unanswered == MOST_UNANSWERED:
                    log.warning(
                        "%d turns in a row failed, the last with: %s; the run stops here and can be resumed",
                        *(self._unanswered, played.error),
                    )
                raise _Stopped
            self._write(play, session, played)
            if self._is_decided:
                raise _Stopped

    def _check_room(self, session: Session, played: PlayedTurn) -> None:
        """Raise RunError where the turn, or its memory, came to nothing only because a disk is full."""
        events = session.trace.of_turn(played.number)
        away = [e.text for e in events if isinstance(e, Notice) and e.name == MEMORY_UNAVAILABLE]
        for why in (played.failure, *away):
            if is_out_of_room(why):
                kept = "what was done is kept: once that is mended, --resume goes on"
                raise RunError(f"{self._folder.path}: there is no room on the disk: {why}; {kept}")

    def _write(self, play: Assignment, session: Session, played: PlayedTurn) -> None:
        trace = session.trace
        if played.failure is not None:
            log_failure(session, played)
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
            wall_seconds=time.perf_counter() - played.began,
            totals=trace.totals(played.number),
        )
        self._folder.append_turn(row)
        if self._follower is not None:
            self._follower.written(row)
        self._pace.turn_done(played.failure is not None, f"{trace.flow} · {trace.conversation}")


class _Pace:
    """How far the run is, and how long the rest takes at the pace of the last turns.

    Only those tell: turns that a recording answers come first in a continued run, and at once.
    """

    def __init__(self, total: int, on_progress: Callable[[RunProgress], None]) -> None:
        self._total = total
        self._on_progress = on_progress
        self._done = self._failed = 0
        self._ends: deque[float] = deque(maxlen=33)

    def begin(self) -> None:
        self._ends.append(time.perf_counter())
        self._report("")

    def turn_done(self, failed: bool, label: str) -> None:
        self._done += 1
        self._failed += failed
        self._ends.append(time.perf_counter())
        self._report(label)

    def report_indexing(self, done: int, total: int) -> None:
        if done < total:  # a small corpus is done before anybody could read it
            self._report(f"indexing: {done} of {total} passages")

    def _report(self, label: str) -> None:
        turns = len(self._ends) - 1
        left = (self._ends[-1] - self._ends[0]) / turns * (self._total - self._done) if turns > 0 else None
        self._on_progress(
            RunProgress(done=self._done, total=self._total, failed=self._failed, seconds_left=left, label=label)
        )
