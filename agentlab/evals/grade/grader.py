"""Grading of an ended turn or of a finished run, and the check that a conversation's ledger adds up.

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
from agentlab.core.protocols import Embedder
from agentlab.core.trace import Costs, Trace, check_totals
from agentlab.data.conversations import Conversation, Turn
from agentlab.evals import scorers as own_scorers
from agentlab.evals.scorers import TurnOutcome
from agentlab.evals.store.fold import NOT_RECORDED_REASON
from agentlab.evals.store.measures import MAX_VALUE
from agentlab.evals.store.rows import StoredScore, TurnRow

if TYPE_CHECKING:
    import numpy as np


from itertools import groupby

from msgspec.structs import replace

from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.summary import summarise


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


class FieldUnknown(AttributeError):
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
        embedder: Embedder,
        path: Path,
        *,
        embeds_at_once: bool = False,
    ) -> None:
        """Take scorers and an embedder, which runs on the loop unless it never waits (`embeds_at_once`)."""
        self._scorers = scorers
        self._embedder = embedder
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
            work = self._embedder.embed(list(texts))
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
                embedder=self._embedder.name,
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


async def regrade(
    folder: RunFolder,
    datasets: Sequence[Dataset],
    grader: Grader,
    *,
    complete: bool,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Check the ledger, grade every turn, and write turns and `summary.json`; raises RunError if a scorer fails.

    `on_progress` gets the number of graded turns and the total.
    """
    conversations = {(d.name, conversation_name(d, each, datasets)): each for d in datasets for each in d.conversations}
    ledger, turns = folder.ledger, folder.turns()
    last_attempts = {**ledger.last_attempts}
    for row in turns:
        last_attempts[row.trial] = max(row.take, last_attempts.get(row.trial, 0))
    fold = Fold(name for _, name in conversations)
    for abandoned in ledger.abandoned(last_attempts):
        fold.flows[abandoned.flow].add_abandoned(abandoned.events)
    done = 0
    rows_of = {key: list(rows) for key, rows in groupby(turns, key=lambda row: row.trial)}
    for key in dict.fromkeys((*rows_of, *ledger)):
        is_last = key in ledger and ledger.last_attempts[key] == last_attempts[key]
        trace = ledger[key] if is_last else Trace(*key)
        rows: list[TurnRow] = []
        for row in rows_of.get(key, ()):
            conversation = conversations[row.dataset, row.conversation]
            ingest = None
            if isinstance(conversation, Question):
                ingest = ledger.get((row.flow, ingest_name(row.dataset, conversation), row.epoch))
            scores = await grader.grade(conversation, row, trace, ingest.events if ingest else ())
            if grader.failure is not None:
                raise grader.failure
            rows.append(replace(row, scores=scores))
            folder.append_turn(rows[-1])
            done += 1
        on_progress(done, len(turns))
        costs, fault = checked_costs(trace, rows, ended=complete)
        if fault:
            raise RunError(f"{folder.path}: {fault}; --resume plays it again")
        fold.add(trace, rows, costs)
    folder.write_json("summary.json", summarise(folder.header, fold.flows, complete=complete, secrets=folder.secrets()))
