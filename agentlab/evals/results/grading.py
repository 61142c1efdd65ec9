"""The end of a run: its ledger is checked, every turn is graded, and the scores and the summary are written."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import NotRecorded, RunError
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, name_of
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.results.reuse import UNGRADED
from agentlab.evals.results.rows import ScoreRow, TurnRow
from agentlab.evals.results.run import Run
from agentlab.evals.results.summary import summarise
from agentlab.evals.run.folder import RunFolder
from agentlab.evals.scorers import Score, TurnOutcome

if TYPE_CHECKING:
    import numpy as np


log = logging.getLogger(__name__)
SHARED = ("flow", "dataset", "conversation", "category", "turn", "epoch")
"""What a score says of its turn."""


async def finish(
    folder: RunFolder,
    datasets: Sequence[Dataset],
    scorers: Sequence[Any],
    embed: Callable[[Sequence[str]], Coroutine[Any, Any, np.ndarray]],
    *,
    complete: bool,
) -> Run:
    """Check conservation, grade every turn, and write `scores.jsonl` and `summary.json`.

    Conversations that do not add up are quarantined: the summary names them, and the run is not complete.
    """
    run = Run(folder)
    quarantined = folder.played.faults(complete=complete)
    for play, cause in quarantined.items():
        log.warning("%s is quarantined, and --resume plays it again: %s", "/".join(map(str, play)), cause)
    loop = asyncio.get_running_loop()
    expected = {
        (dataset.name, name_of(dataset, conversation, datasets)): conversation
        for dataset in datasets
        for conversation in dataset.conversations
    }

    def embed_on_loop(texts: Sequence[str]) -> np.ndarray:
        return asyncio.run_coroutine_threadsafe(embed(list(texts)), loop).result()

    def grade_all() -> list[ScoreRow]:
        graded: list[ScoreRow] = []
        for row in folder.played.turns:
            if given_up.is_set():
                break
            found = _grade_turn(run, row, expected[row.dataset, row.conversation], scorers, embed_on_loop)
            of = {name: getattr(row, name) for name in SHARED}
            graded += [ScoreRow(**of, metric=name, value=s.value, reason=s.reason) for name, s in found.items()]
        return graded

    # A thread cannot be cancelled, only asked.
    given_up = threading.Event()
    try:
        scores = await asyncio.to_thread(grade_all)
    finally:
        given_up.set()
    folder.write_scores(scores)
    folder.write_json("summary.json", summarise(run, scores, datasets, quarantined, complete=complete))
    return run


def _grade_turn(
    run: Run,
    row: TurnRow,
    conversation: Conversation,
    scorers: Sequence[Any],
    embed: Callable[[Sequence[str]], np.ndarray],
) -> dict[str, Score]:
    turn = conversation.turns[row.turn]
    trace = run.traces.get(row.play, Trace(*row.play))
    before = [event for event in trace.events if event.turn < row.turn]
    if isinstance(conversation, Question):
        filled = run.traces.get((row.flow, ingest_name(row.dataset, conversation), row.epoch))
        before = [*(filled.events if filled else ()), *before]
    scores: dict[str, Score] = {}
    for scorer in scorers:
        metrics = scorer.metrics(turn)
        if not metrics:
            continue
        if row.reply is None:
            failed = Score(value=0.0, reason=f"the turn failed: {str(row.error)[:200]}")
            scores |= dict.fromkeys(metrics, failed)
            continue
        outcome = TurnOutcome(
            reply=row.reply,
            events=trace.of_turn(row.turn),
            embed=embed,
            events_before=before,
            turns_before=conversation.turns[: row.turn],
            tools=conversation.tools,
        )
        try:
            scores |= scorer.score(turn, outcome)
        except NotRecorded as miss:
            scores |= dict.fromkeys(metrics, Score(value=0.0, reason=f"{UNGRADED}: {miss}"))
        except (Exception, SystemExit, KeyboardInterrupt) as failure:  # a thread is interrupted by nobody else
            where = f"turn {row.turn} of {row.conversation} by {row.flow}"
            raise RunError(
                f"{run.path}: grading {where} for {', '.join(metrics)} failed: {type(failure).__name__}: {failure}."
                " The replies are kept: once the scorer is mended, --resume grades them"
            ) from failure
    return scores
