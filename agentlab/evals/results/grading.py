"""The end of a run: its ledger is checked, every turn is graded, and the scores and the summary are written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import NotRecorded, RunError
from agentlab.core.trace import Trace, check_conservation
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset, name_of
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.results.reuse import UNGRADED
from agentlab.evals.results.rows import Play, ScoreRow, TurnRow
from agentlab.evals.results.run import Run
from agentlab.evals.results.summary import summarise
from agentlab.evals.run.folder import RunFolder
from agentlab.evals.scorers import Score, TurnOutcome

if TYPE_CHECKING:
    import numpy as np


class NotSaid(Exception):
    """A scorer asked for what the source of an imported answer does not say."""


SHARED = ("flow", "dataset", "conversation", "category", "turn", "epoch")
"""What a score says of its turn."""


class Grader:
    """Grades turns off the loop on which `embed` works; to be made on that loop."""

    def __init__(
        self,
        path: Path,
        datasets: Sequence[Dataset],
        scorers: Sequence[Any],
        embed: Callable[[Sequence[str]], Coroutine[Any, Any, np.ndarray]],
    ) -> None:
        self._path, self._scorers, self._embed = path, scorers, embed
        self._loop = asyncio.get_running_loop()
        self._expected = {
            (dataset.name, name_of(dataset, conversation, datasets)): conversation
            for dataset in datasets
            for conversation in dataset.conversations
        }

    async def grade(self, rows: Sequence[TurnRow], traces: Mapping[Play, Trace]) -> list[ScoreRow]:
        """Of every turn, by every scorer that has a say over it; raises RunError where a scorer fails."""

        def grade_all() -> list[ScoreRow]:
            graded: list[ScoreRow] = []
            for row in rows:
                if given_up.is_set():
                    break
                conversation = self._expected[row.dataset, row.conversation]
                outcome = self._outcome(row, conversation, traces)
                graded += grade(self._path, row, conversation.turns[row.turn], self._scorers, outcome)
            return graded

        # A thread cannot be cancelled, only asked.
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(grade_all)
        finally:
            given_up.set()

    def _embed_on_loop(self, texts: Sequence[str]) -> np.ndarray:
        return asyncio.run_coroutine_threadsafe(self._embed(list(texts)), self._loop).result()

    def _outcome(self, row: TurnRow, conversation: Conversation, traces: Mapping[Play, Trace]) -> TurnOutcome | None:
        """None of a turn that failed."""
        if row.reply is None:
            return None
        trace = traces.get(row.play, Trace(*row.play))
        before = [event for event in trace.events if event.turn < row.turn]
        if isinstance(conversation, Question):
            filled = traces.get((row.flow, ingest_name(row.dataset, conversation), row.epoch))
            before = [*(filled.events if filled else ()), *before]
        return TurnOutcome(
            reply=row.reply,
            events=trace.of_turn(row.turn),
            embed=self._embed_on_loop,
            events_before=before,
            turns_before=conversation.turns[: row.turn],
            tools=conversation.tools,
        )


async def finish(folder: RunFolder, datasets: Sequence[Dataset], grader: Grader, *, complete: bool) -> Run:
    """Check conservation, grade every turn, and write `scores.jsonl` and `summary.json`."""
    run = Run(folder)
    _check_ledger(run, complete)
    scores = await grader.grade(folder.played.turns, run.traces)
    folder.write_scores(scores)
    folder.write_json("summary.json", summarise(run, scores, datasets, complete=complete))
    return run


def _check_ledger(run: Run, complete: bool) -> None:
    rows = run.folder.played.turns
    answered = {(*row.play, row.turn) for row in rows}
    for play, trace in run.traces.items():
        # A turn that a kill cut short may have lost the steps that were open; what it cost still counts.
        whole = [event for event in trace.events if complete or (*play, event.turn) in answered]
        check_conservation(whole, "/".join(map(str, play)))
    for row in rows:
        trace = run.traces.get(row.play, Trace(*row.play))
        if not trace.totals(row.turn).agrees_with(row.totals):
            raise RunError(f"{run.path}: turn {row.turn} of {row.conversation} does not add up to its calls")


def grade(
    path: Path, row: TurnRow, turn: Turn, scorers: Sequence[Any], outcome: TurnOutcome | None
) -> Iterator[ScoreRow]:
    """What each scorer says of a turn of the run in `path`."""
    of = {name: getattr(row, name) for name in SHARED}

    def scored(found: Mapping[str, Score]) -> Iterator[ScoreRow]:
        for name, given in found.items():
            yield ScoreRow(**of, metric=name, value=given.value, reason=given.reason)

    for scorer in scorers:
        metrics = scorer.metrics(turn)
        if not metrics:
            continue
        if outcome is None:
            failed = Score(value=0.0, reason=f"the turn failed: {str(row.error)[:200]}")
            yield from scored(dict.fromkeys(metrics, failed))
            continue
        try:
            found = scorer.score(turn, outcome)
        except NotRecorded as miss:
            found = dict.fromkeys(metrics, Score(value=0.0, reason=f"{UNGRADED}: {miss}"))
        except NotSaid as unknown:
            for name in metrics:
                yield ScoreRow(**of, metric=name, value=None, reason=str(unknown))
            continue
        except Exception as failure:
            where = f"turn {row.turn} of {row.conversation} by {row.flow}"
            raise RunError(
                f"{path}: grading {where} for {', '.join(metrics)} failed: {type(failure).__name__}: {failure}."
                " The replies are kept: once the scorer is mended, `agentlab score` grades them"
            ) from failure
        yield from scored(found)
