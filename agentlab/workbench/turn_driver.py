"""Driver of one session's turns; all turns start and end here.

    driver = TurnDriver(session)
    result = await driver.play(variant.respond, 0, UserTurn(text="How wide is the goal?"))
    await driver.finish_background()

Evaluations, live chats and the ingestion of memory sets use it.
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
from agentlab.wire.offline import refusal_in

log = logging.getLogger(__name__)
Respond = Callable[[UserTurn, Session], Awaitable[Reply]]
_NO_LIMIT = contextlib.nullcontext()


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """Outcome of a turn: the reply, or the exception that the flow raised."""

    number: int
    turn: UserTurn
    reply: Reply | None = None
    failure: BaseException | None = None
    started_at: float
    """Seconds by `time.perf_counter`."""

    @property
    def error(self) -> str | None:
        return None if self.failure is None else f"{type(self.failure).__name__}: {self.failure}"


class TurnDriver:
    """Plays the turns of `session` in sequence."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turns = 0
        """Number of started turns."""
        self._finishing: asyncio.Task[None] | None = None
        self._started_at = time.perf_counter()

    async def play(self, respond: Respond, number: int, turn: UserTurn, *, now: datetime | None = None) -> TurnResult:
        """Wait for the last turn's background work, play one turn and return its result, also for a failed turn.

        Raises FATAL_ERRORS, which end a run, and CancelledError if the caller is cancelled.
        """
        await self.finish_background()
        self.turns += 1
        if (text := join_surrogates(turn.text)) != turn.text:
            turn = replace(turn, text=text)
        self.session.begin_turn(number, turn.speaker_name or turn.speaker_id or "", now)
        started_at = time.perf_counter()
        stream = self.session.stream
        stream.emit(TurnStarted(number, turn))
        reply, failure = None, None
        seconds, limit_name = self._time_left()
        try:
            async with asyncio.timeout(seconds) if seconds is not None else _NO_LIMIT as limit:
                reply = _validate_reply(await respond(turn, self.session))
        except BaseException as raised:
            # A flow may raise any exception, also CancelledError and SystemExit.
            task = asyncio.current_task()
            cancelled = isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling() > 0
            if cancelled or isinstance(raised, FATAL_ERRORS):
                stream.emit(Done(number, error="interrupted" if cancelled else str(raised)))
                raise
            failure = refusal_in(raised)
            if isinstance(raised, TimeoutError) and limit is not None and limit.expired():
                failure = TimeoutError(f"the turn was not done in time ({limit_name})")
        result = TurnResult(number=number, turn=turn, reply=reply, failure=failure, started_at=started_at)
        stream.emit(Done(number, reply, result.error))
        cited = ", ".join(citation.title for citation in reply.citations) if reply else ""
        if outcome := result.error or (cited and f"cites {cited}"):
            trace = self.session.trace
            log.info("%s/%s turn %d: %s", trace.flow, trace.conversation, number + 1, outcome)
        return result

    def _time_left(self) -> tuple[float | None, str]:
        """Return the seconds for a new turn (None: no limit) and the limit with its spec key."""
        turn, conversation = self.session.has.bounds.turn, self.session.has.bounds.conversation
        remaining = None if conversation is None else max(0.0, conversation - (time.perf_counter() - self._started_at))
        if remaining is not None and (turn is None or remaining < turn):
            return remaining, f"timeouts.conversation: {conversation:g} s"
        return turn, "" if turn is None else f"timeouts.turn: {turn:g} s"

    async def finish_background(self) -> None:
        """Run the background work of the last turn, or wait until it is done."""
        if self._finishing is None:
            await self.session.run_background()
            return
        try:
            # Cancelling the wait must not cancel the work, which writes the last turn to memory.
            await asyncio.shield(self._finishing)
        finally:
            if self._finishing.done():
                self._finishing = None

    def start_background(self) -> None:
        """Start the background work of the last turn as a task; the next turn waits for it."""
        if self._finishing is None:
            self._finishing = asyncio.create_task(self.session.run_background())


def log_failure(session: Session, result: TurnResult) -> None:
    """Log a failed turn, for callers that continue without its reply."""
    trace = session.trace
    log.warning("%s/%s turn %d failed: %s", trace.flow, trace.conversation, result.number + 1, result.error)
    log.debug("traceback of the failed turn", exc_info=result.failure)


def _validate_reply(reply: Any) -> Reply:
    """Return the reply if it can be stored and graded; raise TypeError otherwise, which fails the turn."""
    if not isinstance(reply, Reply):
        raise TypeError(f"the flow returned {type(reply).__name__}, not a Reply; return al.Reply(text=...)")
    if not isinstance(reply.text, str) or not all(isinstance(citation, Citation) for citation in reply.citations):
        raise TypeError(
            "the flow returned a Reply whose text is no string (a completion's text is completion.text) or whose"
            " citations are no Citations"
        )
    if reply.data or reply.citations:
        json.dumps(to_json(reply))
    return reply
