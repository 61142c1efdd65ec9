"""The end of a turn and of a conversation: what it cost, how it is graded, and whether its ledger adds up.

A turn is graded when it has ended: in place by scorers of ours, in a thread by others, which may wait, while the turns
of other conversations go on. What it says does not depend on what comes later.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import NotRecorded, RunError
from agentlab.core.events import Event
from agentlab.core.trace import Costs, Trace, check_totals
from agentlab.data.conversations import Conversation, Turn
from agentlab.evals import scorers as own_scorers
from agentlab.evals.scorers import TurnOutcome
from agentlab.evals.store.fold import NOT_RECORDED_REASON
from agentlab.evals.store.measures import MAX_VALUE
from agentlab.evals.store.rows import StoredScore, TurnRow

if TYPE_CHECKING:
    import numpy as np


def ledger_error(trace: Trace, rows: Sequence[TurnRow], *, ended: bool) -> str:
    """Where the events of a conversation do not add up to its totals, or to those of its turns; "" if they do."""
    return checked_costs(trace, rows, ended=ended)[1]


def checked_costs(trace: Trace, rows: Sequence[TurnRow], *, ended: bool) -> tuple[Costs | None, str]:
    """What all events of a conversation came to, where that was worked out, and the fault there is."""
    answered = {row.turn for row in rows}
    # A turn that a kill cut short may have lost the steps that were open; what it cost still counts.
    whole = [event for event in trace.events if ended or event.turn in answered]
    try:
        costs = check_totals(whole, f"{trace.flow}/{trace.conversation}/{trace.epoch}")
    except RunError as problem:
        return None, str(problem)
    fault = ""
    for row in rows:
        if not costs.of_turn(row.turn).is_close_to(row.totals):
            fault = fault or f"turn {row.turn} of {row.conversation} does not add up to its calls"
    return (costs if len(whole) == len(trace.events) else None), fault


class FieldUnknown(Exception):
    """A scorer asked for what the source of an imported answer does not say."""


def grade(
    path: Path, row: TurnRow, turn: Turn, scorers: Sequence[Any], outcome: TurnOutcome | None
) -> dict[str, StoredScore]:
    """The scores of a turn of the run in `path`, by metric; `outcome` is None of one that failed.

    Raises RunError where a scorer fails.
    """
    scores: dict[str, StoredScore] = {}
    for scorer in scorers:
        metrics = scorer.metrics(turn)
        if not metrics:
            continue
        if outcome is None:
            scores |= dict.fromkeys(metrics, StoredScore(0.0, f"the turn failed: {str(row.error)[:200]}"))
            continue
        try:
            scores |= {metric: _stored(score) for metric, score in scorer.score(turn, outcome).items()}
        except NotRecorded as miss:
            scores |= dict.fromkeys(metrics, StoredScore(0.0, f"{NOT_RECORDED_REASON}: {miss}"))
        except FieldUnknown as unknown:
            scores |= dict.fromkeys(metrics, StoredScore(None, str(unknown)))
        except (Exception, SystemExit, KeyboardInterrupt) as failure:
            if isinstance(failure, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C; other threads are interrupted by nobody but the scorer
            where = f"turn {row.turn} of {row.conversation} by {row.flow}"
            raise RunError(
                f"{path}: grading {where} for {', '.join(metrics)} failed: {type(failure).__name__}: {failure}"
                f" (scorer {getattr(scorer, '__name__', type(scorer).__name__)})."
                " The replies are kept: once the scorer is mended, --resume grades them"
            ) from failure
    return scores


class Grader:
    """Grades the turns of a run with its scorers; what fails in one of them is kept for the end of the run."""

    def __init__(
        self,
        scorers: Sequence[Any],
        embed: Callable[[Sequence[str]], Coroutine[Any, Any, np.ndarray]],
        path: Path,
        *,
        embeds_at_once: bool = False,
    ) -> None:
        """`embed` runs on the loop, unless it waits for nothing and shares nothing (`embeds_synchronously`)."""
        self._scorers = scorers
        self._embed = embed
        self._embeds_at_once = embeds_at_once
        self._only_computes = embeds_at_once and all(map(_is_own, scorers))
        self._path = path
        self.failure: RunError | None = None

    async def grade(
        self, conversation: Conversation, row: TurnRow, trace: Trace, filled: Sequence[Event] = ()
    ) -> dict[str, StoredScore] | None:
        """The scores of a turn, by metric; None where a scorer failed, and with it all grading that is still to come.

        `filled` are the events by which the flow filled the memory that a question is asked against.
        """
        if self.failure is not None:
            return None
        turn = conversation.turns[row.turn]
        asked = [scorer for scorer in self._scorers if scorer.metrics(turn)]
        if not asked:
            return {}
        loop = asyncio.get_running_loop()

        def embed_on_loop(texts: Sequence[str]) -> np.ndarray:
            work = self._embed(list(texts))
            return _done(work) if self._embeds_at_once else asyncio.run_coroutine_threadsafe(work, loop).result()

        outcome = None
        if row.reply is not None:
            outcome = TurnOutcome(
                reply=row.reply,
                events=trace.of_turn(row.turn),
                embed=embed_on_loop,
                events_before=[*filled, *(event for event in trace.events if event.turn < row.turn)],
                turns_before=conversation.turns[: row.turn],
                tools=conversation.tools,
            )
        work = functools.partial(grade, self._path, row, turn, asked, outcome)
        try:
            return work() if self._only_computes else await asyncio.to_thread(work)
        except RunError as failure:
            self.failure = failure
            return None


def _stored(score: Any) -> StoredScore:
    """The score as a run keeps it: a float of any number, unknown where it cannot be measured; a bare number will do.

    Raises TypeError or OverflowError for what is no number.
    """
    value, reason = getattr(score, "value", score), getattr(score, "reason", None)
    reason = "" if reason is None else str(reason)
    if value is None or type(value) is bool:
        return StoredScore(value, reason)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is no number")
    number = value if type(value) is int else float(value)
    if -MAX_VALUE <= number <= MAX_VALUE:
        return StoredScore(number, reason)
    return StoredScore(None, f"the scorer gave {float(number):g}, which is no measurement{reason and f': {reason}'}")


def _is_own(scorer: Any) -> bool:
    """Whether it came with this package: those wait for nothing. Of a stranger's nobody knows."""
    return isinstance(scorer, ModuleType) and scorer.__name__.startswith(f"{own_scorers.__name__}.")


def _done(work: Coroutine[Any, Any, np.ndarray]) -> np.ndarray:
    """What a coroutine brings that waits for nothing, here and now."""
    try:
        work.send(None)
    except StopIteration as end:
        found: np.ndarray = end.value
        return found
    work.close()
    raise RuntimeError("an embedder that calls itself quick waited for something")
