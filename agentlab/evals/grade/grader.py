"""Grading of an ended turn, and the check that a conversation's ledger adds up.

Own scorers grade at once. Others run in a thread, since they may wait, while other conversations continue. A score
does not depend on later turns.
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


def checked_costs(trace: Trace, rows: Sequence[TurnRow], *, ended: bool) -> tuple[Costs | None, str]:
    """Return the costs of all events of a conversation, None if not computed, and the fault or ""."""
    ended_turns = {row.turn for row in rows}
    # A killed turn may lack the events of its open steps, so it is not checked.
    events = [event for event in trace.events if ended or event.turn in ended_turns]
    try:
        costs = check_totals(events, f"{trace.flow}/{trace.conversation}/{trace.epoch}")
    except RunError as problem:
        return None, str(problem)
    fault = ""
    for row in rows:
        if not costs.of_turn(row.turn).is_close_to(row.totals):
            fault = fault or f"turn {row.turn + 1} of {row.conversation} does not add up to its calls"
    return (costs if len(events) == len(trace.events) else None), fault


class FieldUnknown(Exception):
    """Raised if a scorer reads a field that the source of an imported answer does not report."""


def grade(
    path: Path, row: TurnRow, turn: Turn, scorers: Sequence[Any], outcome: TurnOutcome | None
) -> dict[str, StoredScore]:
    """Return metric -> score for a turn of the run in `path`; `outcome` is None for a failed turn.

    Raises RunError if a scorer fails.
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
                raise  # Ctrl-C; in another thread only the scorer itself can raise it
            location = f"turn {row.turn + 1} of {row.conversation} by {row.flow}"
            raise RunError(
                f"{path}: grading {location} for {', '.join(metrics)} failed: {type(failure).__name__}: {failure}"
                f" (scorer {getattr(scorer, '__name__', type(scorer).__name__)})."
                " The replies are saved; fix the scorer, and --resume grades them"
            ) from failure
    return scores


class Grader:
    """Grades the turns of a run; the first failure of a scorer is raised at the end of the run."""

    def __init__(
        self,
        scorers: Sequence[Any],
        embed: Callable[[Sequence[str]], Coroutine[Any, Any, np.ndarray]],
        path: Path,
        *,
        embeds_at_once: bool = False,
    ) -> None:
        """Take scorers and `embed`, which runs on the loop unless it never waits (`embeds_at_once`)."""
        self._scorers = scorers
        self._embed = embed
        self._embeds_at_once = embeds_at_once
        self._only_computes = embeds_at_once and all(map(_is_own, scorers))
        self._path = path
        self.failure: RunError | None = None

    async def grade(
        self, conversation: Conversation, row: TurnRow, trace: Trace, filled: Sequence[Event] = ()
    ) -> dict[str, StoredScore] | None:
        """Return metric -> score for a turn; None after a scorer failed, then also for all later turns.

        `filled` are the events with which the flow filled the memory that a question needs.
        """
        if self.failure is not None:
            return None
        turn = conversation.turns[row.turn]
        scorers = [scorer for scorer in self._scorers if scorer.metrics(turn)]
        if not scorers:
            return {}
        loop = asyncio.get_running_loop()

        def embed_on_loop(texts: Sequence[str]) -> np.ndarray:
            work = self._embed(list(texts))
            return _result_of(work) if self._embeds_at_once else asyncio.run_coroutine_threadsafe(work, loop).result()

        outcome = None
        if row.reply is not None:
            outcome = TurnOutcome(
                reply=row.reply,
                events=trace.at(row.turn),
                embed=embed_on_loop,
                events_before=[*filled, *(event for event in trace.events if event.turn < row.turn)],
                turns_before=conversation.turns[: row.turn],
                tools=conversation.tools,
            )
        work = functools.partial(grade, self._path, row, turn, scorers, outcome)
        try:
            return work() if self._only_computes else await asyncio.to_thread(work)
        except RunError as failure:
            self.failure = failure
            return None


def _stored(score: Any) -> StoredScore:
    """Return a scorer's result, a Score or a bare number, as it is stored; infinite and huge values are unknown.

    Raises TypeError or OverflowError if the value is no number.
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
    """Return True if the scorer is part of this package, so that it never waits."""
    return isinstance(scorer, ModuleType) and scorer.__name__.startswith(f"{own_scorers.__name__}.")


def _result_of(work: Coroutine[Any, Any, np.ndarray]) -> np.ndarray:
    """Return the result of a coroutine that never waits; raises RuntimeError if it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        vectors: np.ndarray = end.value
        return vectors
    work.close()
    raise RuntimeError("the embedder declares IS_QUICK, but waits; remove IS_QUICK from its file")
