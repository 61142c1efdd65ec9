"""Searches of imported answers, built from the documents that their source reports, for retrieval scorers.

sources = ImportedSearches(data.documents)
sources.add(row, conversation)
sources.known_to(scorer)          # {"events": (Search(...),), "events_before": ()}; {} if the source reports none
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from msgspec import UNSET

from agentlab.core.events import Search
from agentlab.core.messages import Passage
from agentlab.data.conversations import Conversation
from agentlab.data.documents import Document
from agentlab.evals.scorers import groundedness, lookup, ranking, retrieval
from agentlab.evals.store.rows import TrialKey, TurnRow

READERS = (groundedness, ranking, retrieval)
"""Scorers that read passages; `lookup` reads only whether there was a search."""


class ImportedSearches:
    """Builds searches row by row; rows of one trial must come in order."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = {document.doc_id: document for document in documents}
        self._trial: TrialKey | None = None
        self._by_turn: dict[int, tuple[Search, ...] | None] = {}
        self._steps: int | None = None
        self._now: tuple[Search, ...] | None = None
        self._before: tuple[Search, ...] | None = None

    def add(self, row: TurnRow, conversation: Conversation) -> None:
        if row.trial != self._trial:
            self._trial, self._by_turn = row.trial, {}
        earlier = [self._by_turn.get(number) for number in range(row.turn) if conversation.turns[number].scored]
        self._before = None if None in earlier else tuple(chain.from_iterable(searches or () for searches in earlier))
        self._steps = None if row.retrieval_steps is UNSET else row.retrieval_steps
        self._now = self._by_turn[row.turn] = self._searches_of(row)

    def known_to(self, scorer: Any) -> dict[str, Any]:
        """Return the fields of TurnOutcome that `scorer` may read for the last row."""
        if scorer is lookup and self._steps is not None:
            return {"events": (_search(0, ()),) if self._steps else ()}
        if scorer not in READERS or self._now is None:
            return {}
        return {"events": self._now} | ({} if self._before is None else {"events_before": self._before})

    def _searches_of(self, row: TurnRow) -> tuple[Search, ...] | None:
        """Return one search with the reported documents, none if there was no search, or None if unknown."""
        if row.passages is UNSET or not self._documents.keys() >= {*row.passages}:
            return () if row.retrieval_steps == 0 else None
        passages = tuple(
            Passage(id=each.doc_id, doc_id=each.doc_id, title=each.title, text=each.text, start=0, end=len(each.text))
            for each in (self._documents[name] for name in row.passages)
        )
        return (_search(row.turn, passages),)


def _search(turn: int, passages: tuple[Passage, ...]) -> Search:
    return Search(id=0, turn=turn, phase="retrieve", query="", passages=passages)
