"""Imported answers graded: what each scorer says of them, and what their source noted."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from agentlab.data.datasets import Dataset
from agentlab.evals.grade.grader import FieldUnknown, grade
from agentlab.evals.grade.imported_searches import ImportedSearches
from agentlab.evals.store.fold import FlowFold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.ledger import iter_rows
from agentlab.evals.store.progress import ROWS_BETWEEN_REPORTS
from agentlab.evals.store.rows import RESTART_MARKER, StoredScore, TurnRow, encode_line
from agentlab.evals.store.summary import summarise

STORED = "published_"
"""How the measures begin that the source gave along with the answers; more is better."""


def published_numbers(published: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """What was noted for an answer as numbers by name (`em`, `automatic_RougeL`); of several raters the median."""
    for name, value in published.items():
        if isinstance(value, (int, float)):
            yield before + name, _float(value)
        elif isinstance(value, Mapping) and before.startswith("human"):
            ratings = [_float(rating) for rating in value.values() if isinstance(rating, (int, float))]
            if ratings:
                yield before + name, statistics.median(ratings)
        elif isinstance(value, Mapping):
            yield from published_numbers(value, f"{before}{name}_")


def _float(number: float) -> float:
    """Infinite for a whole number that no float holds; an import refuses it."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


class Said:
    """What is known of an imported answer, by the names of a TurnOutcome or a Reply; asking for more raises
    FieldUnknown.
    """

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        raise FieldUnknown(f"the source does not say: {name}")


def read_turns(folder: RunFolder) -> Iterator[TurnRow]:
    """The turns of a run as they stand in its files, one at a time."""
    for file in folder.held("turns.jsonl"):
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
    """Write an imported run's turns with their scores, and its summary; without `embed` what needs it is not known.

    `on_progress` is told how many turns are graded, and of how many. Returns the measures that there are now, those
    that the source gave among them.
    """
    conversations = {conversation.id: conversation for conversation in data.conversations}
    sources, ranks = ImportedSearches(data.documents), {name: rank for rank, name in enumerate(conversations)}
    flows: defaultdict[str, FlowFold] = defaultdict(FlowFold)
    known: dict[str, Any] = {} if embed is None else {"embed": embed}
    stored: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    """Where any system has a number: there the others' is unknown, elsewhere it is no issue."""
    for row in rows:
        for name, _ in published_numbers(row.published or {}):
            stored[name].add((row.conversation, row.turn))

    def lines() -> Iterator[bytes]:
        for done, row in enumerate(rows):
            if done % ROWS_BETWEEN_REPORTS == 0:
                on_progress(done, len(rows))
            conversation = conversations[row.conversation]
            sources.take(row, conversation)
            turn = conversation.turns[row.turn]
            scores: dict[str, StoredScore] = {}
            for scorer in scorers:
                said: Any = None
                if row.reply is not None:
                    found = known | sources.known_to(scorer)
                    before, tools = conversation.turns[: row.turn], conversation.tools
                    said = Said(reply=Said(text=row.reply.text), turns_before=before, tools=tools, **found)
                scores |= grade(folder.path, row, turn, [scorer], said)
            numbers = dict(published_numbers(row.published or {}))
            for name, places in stored.items():
                if (row.conversation, row.turn) in places:
                    why = "as its authors noted it" if name in numbers else "the source does not say"
                    scores[STORED + name] = StoredScore(numbers.get(name), why)
            graded = replace(row, scores=scores)
            flows[row.flow].take_imported(graded, ranks[row.conversation])
            yield encode_line(graded)

    folder.replace_lines("turns.jsonl", lines())
    on_progress(len(rows), len(rows))
    folder.write_json("summary.json", summarise(folder.header, flows, complete=True))
    return list(dict.fromkeys(name for flow in flows.values() for name in flow.scores))
