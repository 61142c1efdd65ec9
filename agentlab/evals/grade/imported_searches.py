"""Searches of imported answers, built from the documents that their source reports, for retrieval scorers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import UNSET

from agentlab.core.events import Search
from agentlab.core.messages import Passage
from agentlab.data.documents import Document
from agentlab.evals.scorers import groundedness, lookup, ranking, retrieval
from agentlab.evals.store.rows import TurnRow

READERS = (groundedness, ranking, retrieval)
"""Scorers that read passages; `lookup` reads only whether there was a search."""


Searches = tuple[Search, ...] | None
"""Searches of a turn; None if its source does not report them."""


def known_to(scorer: Any, row: TurnRow, now: Searches, before: Sequence[Searches]) -> dict[str, Any]:
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
