"""Retrieval alone, without a language model: does the search find the documents a question is about?

    python evals/bench/retrieval.py /path/to/squad2 /path/to/pyfaq [--method hybrid]... [--max-tokens 200] [--json]

The query is the user's message of every scored turn that names relevant documents, unchanged. Passages are mapped to
their documents, the first passage of each kept, and

    recall@k      the share of the relevant documents among the first k distinct documents, mean over turns
    passages@k    the same among the documents of the first k passages: what a prompt with k passages holds
    MRR           1 / the rank of the first relevant document among the distinct ones, mean over turns

All sets are searched with the same settings. Indexes are kept in AGENTLAB_HOME, so a second run embeds only the
queries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import AgentlabError, DatasetError
from agentlab.core.plugins import names, resolve
from agentlab.core.protocols import Embedder
from agentlab.data.datasets import load_dataset
from agentlab.knowledge.index import DEFAULT_MAX_TOKENS
from agentlab.knowledge.retriever import ROOM, Corpus, find_retriever
from agentlab.models.weights import home

METHODS = tuple(names(ROOM))
_DEPTH = 100
"""Number of passages to retrieve, enough for k distinct documents with several passages each."""


async def measure(folder: Path, method: str, embedder: Embedder, max_tokens: int, top_k: int) -> dict[str, Any]:
    """Row of the table: a data set and a method."""
    dataset = load_dataset(folder)
    questions = [
        (turn.user, set(turn.relevant_doc_ids))
        for conversation in dataset.conversations
        for turn in conversation.turns
        if turn.scored and turn.relevant_doc_ids
    ]
    if not questions:
        raise DatasetError("no scored turn names relevant_doc_ids", folder)
    started = time.perf_counter()
    retriever = find_retriever(method, {}, ())
    corpus = Corpus(
        documents=dataset.documents,
        embedder=embedder,
        query_embedder=embedder,
        folder=home() / "indexes",
        max_tokens=max_tokens,
        progress=lambda done, total: None,
        options=retriever.options,
    )
    index = await retriever.open(corpus)
    await getattr(index, "start", lambda: asyncio.sleep(0))()
    opened = time.perf_counter()
    recall = in_passages = reciprocal = 0.0
    for query, relevant in questions:
        vector = None if index.embedder is None else (await index.embedder.embed([query]))[0]
        hits = [passage.doc_id for passage in await index.search(query, vector, top_k=max(_DEPTH, top_k))]
        distinct = list(dict.fromkeys(hits))
        recall += len(relevant.intersection(distinct[:top_k])) / len(relevant)
        in_passages += len(relevant.intersection(hits[:top_k])) / len(relevant)
        reciprocal += next((1 / rank for rank, doc_id in enumerate(distinct, 1) if doc_id in relevant), 0.0)
    searched = time.perf_counter()
    return {
        "set": folder.name,
        "method": method,
        "documents": len(index.documents),
        "passages": len(getattr(index, "passages", ())),
        "turns": len(questions),
        f"recall@{top_k}": recall / len(questions),
        f"passages@{top_k}": in_passages / len(questions),
        "mrr": reciprocal / len(questions),
        "open_s": opened - started,
        "query_ms": (searched - opened) / len(questions) * 1000,
    }


async def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    provider, _, name = arguments.embedder.partition("/")
    embedder = resolve("models.embedders", provider).connect(name)
    return [
        await measure(folder, method, embedder, arguments.max_tokens, arguments.top_k)
        for folder in arguments.sets
        for method in arguments.method or METHODS
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as aligned text."""
    lines = [list(rows[0])]
    for row in rows:
        lines.append([f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="recall and MRR of the search over data sets")
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET_DIR")
    parser.add_argument("--method", action="append", choices=METHODS, help="may be repeated; default all")
    parser.add_argument("--embedder", default="local/all-minilm-l6-v2")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_MAX_TOKENS, help="maximum tokens of a passage")
    parser.add_argument("--top-k", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON array instead of the table")
    arguments = parser.parse_args()
    try:
        rows = asyncio.run(run(arguments))
    except AgentlabError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(rows, indent=2) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
