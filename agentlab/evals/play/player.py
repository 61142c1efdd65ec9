"""Plays the conversations of a run, or a share of them, through every flow, as many at a time as the spec says.

A turn that raises is a failed turn: it keeps what it cost, scores 0 and is never dropped. Conversations are independent
of each other; the turns of one come in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agentlab.core.errors import Retryable, RunError
from agentlab.core.events import Notice
from agentlab.core.files import is_out_of_room
from agentlab.core.messages import ToolSpec, UserTurn
from agentlab.core.names import MEMORY_UNAVAILABLE
from agentlab.core.protocols import Index
from agentlab.core.stream import Item
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, name_of
from agentlab.data.memory_sets import Question
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.play.account import Account
from agentlab.evals.play.budget import Budget
from agentlab.evals.play.fork import Fork
from agentlab.evals.play.memories import Assignment, BudgetSpent, Memories
from agentlab.evals.play.watching import Follower, Watch
from agentlab.evals.store.fold import FlowFold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.pace import Pace, RunProgress
from agentlab.evals.store.rows import Quarantined
from agentlab.evals.store.writing import KEPT
from agentlab.session.session import Session
from agentlab.tools.stub import StubTools
from agentlab.workbench.conversation import PlayedTurn, Respond, TurnDriver, log_failure
from agentlab.workbench.seat import Seat
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
MOST_UNANSWERED = 10
"""A model that was asked in vain for so many turns is down: going on would only make failed turns of the others."""


class _Stopped(Exception):
    """The run stops; the conversation that is under way begins again when it is continued."""


@dataclass(frozen=True)
class Share:
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


EVERYTHING = Share()


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
    problem: str | None = None
    """What ended it, in a line."""


class Player:
    """The conversations of a run, or those of `share`, as they are being played."""

    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        on_event: Callable[[Trace, Item], None] | None = None,
        share: Share = EVERYTHING,
        fork: Fork | None = None,
        watch: Watch | None = None,
    ) -> None:
        """With `watch` the conversations are played in its order, until it says that the run may stop."""
        self._bench = bench
        self._fork = fork
        self._on_event = on_event

        # Flows take turns on each conversation, so that a machine that slows down slows all of them.
        plays = [
            Assignment(variant, dataset, conversation, name_of(dataset, conversation, datasets), epoch)
            for epoch in range(bench.spec.epochs)
            for dataset in datasets
            for conversation in share.of(dataset)
            for variant in bench.variants
        ]
        names = [name_of(dataset, each, datasets) for dataset in datasets for each in dataset.conversations]
        self._budget = Budget(bench.spec.budget, bench.prices.cost)
        self._follower = None if watch is None else Follower(watch, [play.key for play in plays])
        self.account = Account(bench, names, plays, folder, self._budget)
        self._left = [play for play in plays if not self.account.is_finished(play.key)]
        if watch is not None:
            place = {name: number for number, name in enumerate(watch.order)}
            self._left.sort(key=lambda play: place.get(play.name, len(place)))
        self._indexes: dict[tuple[str, str], Index | None] = {}
        """By data set and flow."""
        self._unanswered = 0
        """Turns in a row, of whatever conversation, that failed because the model could not be reached."""
        self._memories = Memories(
            bench, self.account.begin, self.account.conversation_ended, lambda: self._budget.is_spent
        )
        self.pace = Pace(sum(len(play.conversation.scored_turns) for play in self._left), on_progress)

    @property
    def _is_decided(self) -> bool:
        return self._follower is not None and self._follower.is_decided

    async def _prepare(self) -> None:
        """Start models, build indexes, and say which memories will be asked."""
        for play in self._left:
            if (play.dataset.name, play.variant.label) not in self._indexes:
                await self._bench.model(play.variant.model)
                self._indexes[play.dataset.name, play.variant.label] = await self._bench.index(
                    play.dataset.documents, play.variant.retrieval, self.pace.report_indexing
                )
            self._memories.expect(self._begins(play))

    async def play_all(self) -> None:
        """Play what is left, until the watch, if there is one, says that the run may stop."""
        graders = fingerprints(self._bench.scorers, self._bench.embedder.name)
        await self.account.take_up(graders, None if self._follower is None else self._follower.written)
        if self._follower is not None:
            self._follower.finished(*self.account.finished)
        await self._prepare()
        self.pace.begin()
        waiting = iter(self._left)

        async def worker() -> None:
            for play in waiting:
                if self._is_decided or self._budget.is_spent or self._is_down:
                    return
                try:
                    await self._play(play)
                    if self._follower is not None:
                        self._follower.finished(play.key)
                except (BudgetSpent, _Stopped):
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._bench.spec.concurrency):
                    group.create_task(worker())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await self._memories.close()
            self.account.let_go()
        self.account.close()

    @property
    def played(self) -> Played:
        """What came of it so far."""
        return Played(
            flows=dict(self.account.fold.flows),
            is_complete=self.account.is_complete,
            is_spent=not self.account.is_complete and self._budget.is_spent,
            quarantined=self.account.set_apart,
            limits={name: limits.summary() for name, limits in self._bench.limits().items()},
        )

    @property
    def _is_down(self) -> bool:
        return self._unanswered >= MOST_UNANSWERED

    def _begins(self, play: Assignment) -> Assignment:
        return play if self._fork is None else self._fork.begins(play)

    async def _play(self, play: Assignment) -> None:
        first = self._begins(play)
        index = self._indexes[play.dataset.name, play.variant.label]
        if self._fork is not None:
            index = await self._bench.index(play.dataset.documents, first.variant.retrieval)
        conversation = play.conversation
        stub = StubTools(
            [ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in conversation.tools]
        )
        today = conversation.metadata.get("today")
        async with contextlib.AsyncExitStack() as opened:
            memory, folder = await opened.enter_async_context(self._memories.memory(first))
            seat = Seat(
                trace=self.account.begin(play.key),
                index=index,
                tools=stub.tools,
                memory=memory,
                folder=folder,
                now=datetime.fromisoformat(today) if today else None,
                recorder=None if self._fork is None else self._fork.recorder(self._bench),
            )
            session = await self._bench.session(first.variant, seat)
            if self._on_event is not None:
                session.stream.on("*", functools.partial(self._on_event, session.trace))
            go_on = None
            if self._fork is not None:
                go_on = functools.partial(self._fork.go_on, self._bench, play, session, seat, opened)
            await self._turns(play, session, stub, first.variant.respond, go_on)
        self.account.conversation_ended(play.key)

    async def _turns(
        self,
        play: Assignment,
        session: Session,
        stub: StubTools,
        respond: Respond,
        go_on: Callable[[], Awaitable[Respond]] | None,
    ) -> None:
        """`go_on` says who answers from the turn of the fork on."""
        driver = TurnDriver(session)
        part: str | None = None
        now: datetime | None = None
        for number, turn in enumerate(play.conversation.turns):
            if go_on is not None and self._fork is not None and number == self._fork.turn:
                respond = await go_on()
            if number > 0:
                self._check_whether_to_go_on()
                if turn.session != part:
                    session.forget_history()
            part = turn.session
            if part:
                with contextlib.suppress(ValueError):  # not every session is named by its date
                    now = datetime.fromisoformat(part)
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
            now = datetime.fromisoformat(moment) if moment else now
            played = await driver.play(respond, number, asked, now=now)
            await driver.finish()
            self._check_room(session, played)
            self._check_model(played)
            if played.failure is not None:
                log_failure(session, played)
            row = await self.account.turn_ended(play, session.trace, played)
            if self._follower is not None:
                self._follower.written(row)
            self.pace.turn_done(played.failure is not None, f"{play.key[0]} · {play.key[1]}")
            await self.pace.pause()

    def _check_whether_to_go_on(self) -> None:
        if self._is_decided or self._budget.is_overdrawn:
            raise _Stopped

    def _check_model(self, played: PlayedTurn) -> None:
        """Stop where the model was asked in vain too often."""
        self._unanswered = self._unanswered + 1 if isinstance(played.failure, Retryable) else 0
        if self._is_down:
            if self._unanswered == MOST_UNANSWERED:
                log.warning(
                    "%d turns in a row failed, the last with: %s; the run stops here and can be resumed",
                    *(self._unanswered, played.error),
                )
            raise _Stopped

    def _check_room(self, session: Session, played: PlayedTurn) -> None:
        """Raise RunError where the turn, or its memory, came to nothing only because a disk is full."""
        if played.failure is None and session.memory is None:
            return
        events = session.trace.of_turn(played.number)
        away = [e.text for e in events if isinstance(e, Notice) and e.name == MEMORY_UNAVAILABLE]
        for why in (played.failure, *away):
            if is_out_of_room(why):
                raise RunError(f"there is no room on the disk: {why}; {KEPT}")
