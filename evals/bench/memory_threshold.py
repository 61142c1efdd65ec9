"""Finds the similarity threshold for facts: python evals/bench/memory_threshold.py datasets/memory [DIR ...]

Every message of a set with `expected_memory` searches the facts that are valid at that time, in the words of the set,
and gets at most three. For each threshold of cosine similarity the table has these rates:

    evidence      facts that answer a question and are recalled
    beside it     other facts that are recalled with them
    chat          messages that need no fact and get none
    unknown       questions without a stated answer that get no fact

The default (`RELEVANCE_THRESHOLD`) was chosen from this table of `datasets/memory`, with local/all-minilm-l6-v2.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from agentlab.core import plugins
from agentlab.core.protocols import RELEVANCE_THRESHOLD, Embedder
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import load_dataset

THRESHOLDS = (-1.0, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
TOP_K = 3


def questions_of(conversation: Conversation) -> Iterator[tuple[Turn, list[str]]]:
    """Return each turn after the first fact, with the current facts."""
    facts: list[str] = []
    for turn in conversation.turns:
        if facts:
            yield turn, list(facts)
        for memory in turn.expected_memory or ():
            if memory.replaces in facts:
                facts.remove(str(memory.replaces))
            if memory.content is not None:
                facts.append(memory.content)


async def scores(embedder: Embedder, folder: Path) -> dict[str, list[list[float]]]:
    """Return column -> similarities of the recalled facts by message; -2 for an expected fact that is not recalled."""
    by_kind: dict[str, list[list[float]]] = {"evidence": [], "beside it": [], "chat": [], "unknown": []}
    for conversation in load_dataset(folder).conversations:
        for turn, facts in questions_of(conversation):
            similarity = np.array(await embedder.embed(facts)) @ np.array(await embedder.embed([turn.user]))[0]
            near = {facts[row]: float(similarity[row]) for row in np.argsort(-similarity)[:TOP_K]}
            evidence = [fact for fact in turn.metadata.get("evidence", ()) if fact in facts]
            if evidence:
                by_kind["evidence"] += [[near.get(fact, -2.0)] for fact in evidence]
                by_kind["beside it"] += [[score] for fact, score in near.items() if fact not in evidence]
            elif turn.unanswerable:
                by_kind["unknown"].append(list(near.values()))
            elif turn.metadata.get("kind") == "chat":
                by_kind["chat"].append(list(near.values()))
    return by_kind


def main(folders: list[str]) -> None:
    name = "local/all-minilm-l6-v2"
    provider, rest = plugins.resolve_provider("models.embedders", name)
    for folder in folders:
        by_kind = asyncio.run(scores(provider.connect(rest), Path(folder)))
        print(f"{folder}, {name}: " + ", ".join(f"{len(rows)} {column}" for column, rows in by_kind.items()))
        print("threshold  " + "".join(f"{column:>10}" for column in by_kind))
        for least in THRESHOLDS:
            recalled = {column: [max(row) >= least for row in rows] for column, rows in by_kind.items()}
            shares = [np.mean(recalled["evidence"]), np.mean(recalled["beside it"])]
            shares += [1 - np.mean(recalled["chat"]), 1 - np.mean(recalled["unknown"])]
            mark = "  the default" if least == RELEVANCE_THRESHOLD else ""
            print(f"{least:9.2f}  " + "".join(f"{fraction:10.2f}" for fraction in shares) + mark)


if __name__ == "__main__":
    main(sys.argv[1:] or ["datasets/memory"])
