"""Grade imported answers, and add the scores that their source reports.

Retrieval scorers see the documents that the source reports as searches.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from agentlab.core.events import Search
from agentlab.core.messages import Passage
from agentlab.data.datasets import Dataset
from agentlab.data.documents import Document
from agentlab.evals.grade.grader import FieldUnknown, grade
from agentlab.evals.scorers import groundedness, lookup, retrieval
from agentlab.evals.store.fold import FlowFold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.ledger import iter_rows
from agentlab.evals.store.progress import ROWS_BETWEEN_REPORTS
from agentlab.evals.store.rows import RESTART_MARKER, StoredScore, TurnRow, encode_line
from agentlab.evals.store.summary import summarise

READERS = (groundedness, retrieval)
"""Scorers that read passages; `lookup` reads only whether there was a search."""


Searches = tuple[Search, ...] | None
"""Searches of a turn; None if its source does not report them."""


def reported_fields(scorer: Any, row: TurnRow, now: Searches, before: Sequence[Searches]) -> dict[str, Any]:
    """Return the fields of TurnOutcome that `scorer` may read, from the searches of the turn and of earlier ones."""
    if scorer is lookup and isinstance(row.retrieval_steps, int):
        return {"events": (_search(0, ()),) if row.retrieval_steps else ()}
    if scorer not in READERS or now is None:
        return {}
    reported = [searches for searches in before if searches is not None]
    fields = {"events": now, "events_before": tuple(chain.from_iterable(reported))}
    return fields if len(reported) == len(before) else {"events": now}


def searches_of(row: TurnRow, documents: Mapping[str, Document]) -> Searches:
    """Return one search with the reported documents, none if there was no search, or None if unknown."""
    if row.passages is UNSET or not documents.keys() >= {*row.passages}:
        return () if row.retrieval_steps == 0 else None
    passages = tuple(
        Passage(id=each.doc_id, doc_id=each.doc_id, title=each.title, text=each.text, start=0, end=len(each.text))
        for each in (documents[name] for name in row.passages)
    )
    return (_search(row.turn, passages),)


def _search(turn: int, passages: tuple[Passage, ...]) -> Search:
    return Search(id=0, turn=turn, phase="retrieve", query="", passages=passages)


STORED = "published_"
"""Prefix of measures whose values the source reports; higher is better."""


def published_numbers(published: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Yield (name, number) of an answer's notes, such as `em` or `automatic_RougeL`; raters give their median."""
    for name, value in published.items():
        if isinstance(value, (int, float)):
            yield before + name, float(value)
        elif isinstance(value, Mapping) and before.startswith("human"):
            ratings = [float(rating) for rating in value.values() if isinstance(rating, (int, float))]
            if ratings:
                yield before + name, statistics.median(ratings)
        elif isinstance(value, Mapping):
            yield from published_numbers(value, f"{before}{name}_")


class Reported:
    """Reported fields of an imported answer, with the names of TurnOutcome or Reply.

    Reading any other field raises FieldUnknown.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise FieldUnknown(f"the source does not say: {name}")


def read_turns(folder: RunFolder) -> Iterator[TurnRow]:
    """Yield the turns of a run, in the order of its files."""
    for file in folder.open_files("turns.jsonl"):
        for row in iter_rows(file, TurnRow):
            if row.turn != RESTART_MARKER:
                yield row


def grade_rows(
    folder: RunFolder,
    rows: Sequence[TurnRow],
    data: Dataset,
    scorers: Sequence[Any],
    embed: Callable[[Sequence[str]], np.ndarray] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Write the turns of an imported run with their scores, and its summary; return all measures of the run.

    Without `embed` the scores that need embeddings are unknown. `on_progress` gets the number of graded turns and the
    total.
    """
    conversations = {conversation.id: conversation for conversation in data.conversations}
    documents = {document.doc_id: document for document in data.documents}
    ranks = {name: rank for rank, name in enumerate(conversations)}
    flows: defaultdict[str, FlowFold] = defaultdict(FlowFold)
    common: dict[str, Any] = {} if embed is None else {"embed": embed}
    reported: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    """Measure -> turns for which some system reports it; for the other systems it is unknown there."""
    for row in rows:
        for name, _ in published_numbers(row.published or {}):
            reported[name].add((row.conversation, row.turn))

    def lines() -> Iterator[bytes]:
        trial, searches = None, dict[int, Searches]()
        for done, row in enumerate(rows):
            if done % ROWS_BETWEEN_REPORTS == 0:
                on_progress(done, len(rows))
            conversation = conversations[row.conversation]
            trial, searches = row.trial, searches if row.trial == trial else {}
            searches[row.turn] = searches_of(row, documents)
            earlier = [searches.get(n) for n in range(row.turn) if conversation.turns[n].scored]
            turn = conversation.turns[row.turn]
            scores: dict[str, StoredScore] = {}
            for scorer in scorers:
                outcome: Any = None
                if row.reply is not None:
                    fields = common | reported_fields(scorer, row, searches[row.turn], earlier)
                    before, tools = conversation.turns[: row.turn], conversation.tools
                    outcome = Reported(reply=Reported(text=row.reply.text), turns_before=before, tools=tools, **fields)
                scores |= grade(folder.path, row, turn, [scorer], outcome)
            numbers = dict(published_numbers(row.published or {}))
            for name, turns in reported.items():
                if (row.conversation, row.turn) in turns:
                    reason = "as its authors noted it" if name in numbers else "the source does not say"
                    scores[STORED + name] = StoredScore(numbers.get(name), reason)
            graded = replace(row, scores=scores)
            flows[row.flow].add_imported(graded, ranks[row.conversation])
            yield encode_line(graded)

    folder.replace_lines("turns.jsonl", lines())
    on_progress(len(rows), len(rows))
    folder.write_json("summary.json", summarise(folder.header, flows, complete=True))
    return list(dict.fromkeys(name for flow in flows.values() for name in flow.scores))
