"""Regrade a finished run and rebuild its summary: no flow runs, and only embeddings need calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from msgspec.structs import replace

from agentlab.core.errors import RunError
from agentlab.core.trace import Trace
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.data.memory_sets import Question, ingest_name
from agentlab.evals.grade.grader import Grader, checked_costs
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.summary import summarise


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
