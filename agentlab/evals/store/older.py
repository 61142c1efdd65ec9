"""Runs of formats 1 and 2, read as today's: what a turn row says besides stood in the ledger and in `scores.jsonl`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from agentlab.core.errors import RunError
from agentlab.core.files import HeldFile
from agentlab.core.messages import from_json
from agentlab.core.trace import Trace
from agentlab.evals.store.ledger import rows_of
from agentlab.evals.store.rows import Play, ScoreRow
from agentlab.evals.store.summary import costs_of

_Turn = TypeVar("_Turn")


def turn_rows(
    kind: type[_Turn], turns: Sequence[HeldFile], scored: Sequence[HeldFile], ledger: Mapping[Play, Trace]
) -> Iterator[_Turn]:
    """The lines of the files `turns`, each with its costs and scores; raises RunError where one is broken."""
    scores: defaultdict[tuple[str, str, int, int], dict[str, Any]] = defaultdict(dict)
    for file in scored:
        for score in rows_of(file, lambda content: from_json(ScoreRow, content), ScoreRow):
            of = scores[score.flow, score.conversation, score.epoch, score.turn]
            of[score.metric] = {"value": score.value, "reason": score.reason}
    for file in turns:
        for row in rows_of(file, lambda content: from_json(dict, content), dict):
            try:
                play = row["flow"], row["conversation"], row["epoch"]
                trace = ledger[play] if play in ledger else Trace(*play)
                costs = costs_of(trace.of_turn(row["turn"]))
                yield from_json(kind, {**costs, **row, "scores": scores[*play, row["turn"]]})
            except (KeyError, ValueError, TypeError) as problem:
                raise RunError(f"{file.path}: a turn cannot be read: {type(problem).__name__}: {problem}") from None
