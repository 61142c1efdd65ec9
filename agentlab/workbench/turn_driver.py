"""Plays the turns of one session: the only place that begins a turn, has a flow respond, and ends the turn.

    driver = TurnDriver(session)
    played = await driver.play(variant.respond, 0, UserTurn(text="How wide is the goal?"))
    await driver.finish()

Evaluations, live chats and the filling of memories all play their turns with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from agentlab.core.errors import FATAL_ERRORS
from agentlab.core.messages import Citation, Reply, UserTurn, to_json
from agentlab.core.stream import Done, TurnStarted
from agentlab.core.strict_json import join_surrogates
from agentlab.session.session import Session

log = logging.getLogger(__name__)
Respond = Callable[[UserTurn, Session], Awaitable[Reply]]
_NO_LIMIT = contextlib.nullcontext()


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """What came of a turn: a reply, or what the flow raised."""

    number: int
    asked: UserTurn
    reply: Reply | None = None
    failure: BaseException | None = None
    started_at: float
    """By `time.perf_counter`."""

    @property
    def error(self) -> str | None:
        return None if self.failure is None else f"{type(self.failure).__name__}: {self.failure}"


class TurnDriver:
    """Plays the turns of `session` one after the other."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turns = 0
        """How many it has begun."""
        self._finishing: asyncio.Task[None] | None = None
        self._began = time.perf_counter()

    async def play(self, respond: Respond, number: int, asked: UserTurn, *, now: datetime | None = None) -> TurnResult:
        """One turn, once the last one has come to its end. What the flow raises is in the turn that is returned.

        Raises what ends a run (FATAL_ERRORS), and CancelledError where it is the caller that is cancelled.
        """
        await self.finish_background()
        self.turns += 1
        if (text := join_surrogates(asked.text)) != asked.text:
            asked = replace(asked, text=text)
        self.session.begin_turn(number, asked.speaker_name or asked.speaker_id or "", now)
        began = time.perf_counter()
        stream = self.session.stream
        if stream.has_listeners:
            stream.emit(TurnStarted(number, asked))
        reply, failure = None, None
        seconds, named = self._time_left()
        try:
            async with asyncio.timeout(seconds) if seconds is not None else _NO_LIMIT as limit:
                reply = _validate_reply(await respond(asked, self.session))
        except BaseException as raised:
            # A flow may raise anything, CancelledError and SystemExit too.
            task = asyncio.current_task()
            cancelled = isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling() > 0
            if cancelled or isinstance(raised, FATAL_ERRORS):
                stream.emit(Done(number, error="interrupted" if cancelled else str(raised)))
                raise
            failure = raised
            if isinstance(raised, TimeoutError) and limit is not None and limit.expired():
                failure = TimeoutError(f"the turn was not done in time ({named})")
        played = TurnResult(number=number, asked=asked, reply=reply, failure=failure, started_at=began)
        if stream.has_listeners:
            stream.emit(Done(number, reply, played.error))
        return played

    def _time_left(self) -> tuple[float | None, str]:
        """Seconds for the turn that begins, None for any number, and the key of the spec that says so."""
        of_turn, of_all = self.session.has.bounds.turn, self.session.has.bounds.conversation
        left = None if of_all is None else max(0.0, of_all - (time.perf_counter() - self._began))
        if left is not None and (of_turn is None or left < of_turn):
            return left, f"timeouts.conversation: {of_all:g} s"
        return of_turn, "" if of_turn is None else f"timeouts.turn: {of_turn:g} s"

    async def finish_background(self) -> None:
        """Do what the last turn left to be done in the background, or wait until it is done."""
        if self._finishing is None:
            await self.session.run_background()
            return
        try:
            # Whoever stops waiting for it does not stop it: it is the last turn's, and on its way to memory.
            await asyncio.shield(self._finishing)
        finally:
            if self._finishing.done():
                self._finishing = None

    def start_background(self) -> None:
        """Begin what the last turn left to be done; the next one waits for it."""
        if self._finishing is None:
            self._finishing = asyncio.create_task(self.session.run_background())


def log_failure(session: Session, played: TurnResult) -> None:
    """Say in the run's log that a turn failed, for those who go on without it."""
    trace = session.trace
    log.warning("%s/%s turn %d failed: %s", trace.flow, trace.conversation, played.number, played.error)
    log.debug("traceback of the failed turn", exc_info=played.failure)


def _validate_reply(reply: Any) -> Reply:
    """The reply, if it can be stored and graded; TypeError otherwise, which makes it a failed turn."""
    if not isinstance(reply, Reply):
        raise TypeError(f"the flow returned {type(reply).__name__}, not a Reply; return al.Reply(text=...)")
    if not isinstance(reply.text, str) or not all(isinstance(citation, Citation) for citation in reply.citations):
        raise TypeError(
            "the flow returned a Reply whose text is no string (what a model says is completion.text) or whose"
            " citations are no Citations"
        )
    if reply.data or reply.citations:
        json.dumps(to_json(reply))
    return reply
