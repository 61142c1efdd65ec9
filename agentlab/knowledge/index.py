"""The index of a corpus: built once, kept on disk by the hash of its content, then shared read-only.

    index = await open_index(documents, embedder, folder=home() / "indexes", method="hybrid")
    vector = (await embedder.embed([query]))[0]
    passages = await index.search(query, vector, top_k=4, doc_ids=["law-11"])

`dense` ranks by cosine similarity (Chroma), `bm25` by words (bm25s, no embedder), `hybrid` by the mean of both, each
scaled to 0..1 over its 100 best candidates. What is indexed is the title and the text of a passage. With the defaults,
.98, .91 and .75 of the relevant documents of squad2, pyfaq and mtrag_human are among the first five; the goals there
(.97, .86, .72) hold for passages of 180 to 240 tokens too (`evals/bench/retrieval.py`).

On disk: `<folder>/<key>/`, which is built beside its place, under a lock, and moved there once it is finished: nobody
ever opens half of one, and nobody writes to one that is there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Passage
from agentlab.core.protocols import Embedder
from agentlab.data.documents import Document
from agentlab.knowledge.bm25 import WordIndex
from agentlab.knowledge.passages import passage_of, split
from agentlab.knowledge.vectors import SAME, StoreError, VectorStore

Method = Literal["dense", "bm25", "hybrid"]
Progress = Callable[[int, int], None]
"""Called with the passages embedded so far and all there are."""
DEFAULT_MAX_TOKENS = 200

_FORMAT = 1
"""To be raised whenever the same input would give other passages."""
_DENSE_WEIGHT = 0.5
_CANDIDATES = 100
_BATCH = 256
"""Passages embedded and stored at once; Chroma takes at most 5,461."""
_DIGITS = 5
"""Of a score. float32 distances differ in the seventh digit from one processor to the next."""


async def open_index(
    documents: Sequence[Document],
    embedder: Embedder | None,
    *,
    folder: Path,
    query_embedder: Embedder | None = None,
    method: Method = "hybrid",
    max_tokens: int = DEFAULT_MAX_TOKENS,
    progress: Progress = lambda done, total: None,
) -> DocumentIndex:
    """The index of `documents` in passages of at most `max_tokens`, from `folder` or built there first.

    Passages are embedded with `embedder`, queries with `query_embedder`, or with the same where none is given; `bm25`
    needs no embedder and uses none. Raises ConfigError for an unknown method, a missing embedder or a folder
    that cannot be written, and whatever the embedder raises; nothing half-built is ever used.
    """
    from filelock import AsyncFileLock

    if method not in ("dense", "bm25", "hybrid"):
        raise ConfigError(f"retrieval method {method!r} is unknown: choose dense, bm25 or hybrid")
    if method == "bm25":
        embedder = None
    elif embedder is None:
        raise ConfigError(f"retrieval method {method!r} needs an embedder: name one, or use bm25")
    documents = tuple(documents)
    home = folder / _key(documents, embedder, max_tokens)
    queries = None if embedder is None else query_embedder or embedder

    async def opened() -> DocumentIndex | None:
        return await asyncio.to_thread(_open, home, documents, queries, method)

    try:
        index = await opened()
        if index is None:
            folder.mkdir(parents=True, exist_ok=True)
            async with AsyncFileLock(f"{home}.lock"):
                # Another process may have built it while this one waited.
                index = await opened()
                if index is None:
                    await _build(home, documents, embedder, max_tokens, progress)
                    index = await opened()
    except OSError as error:
        raise ConfigError(f"{home}: cannot build or read the index here ({error.strerror or error})") from error
    if index is None:
        raise ConfigError(f"{home}: the index was built and cannot be read again; is the disk full?")
    return index


class DocumentIndex:
    """A read-only index of a corpus; made by `open_index`."""

    def __init__(
        self,
        name: str,
        method: Method,
        embedder: Embedder | None,
        documents: tuple[Document, ...],
        passages: tuple[Passage, ...],
        words: WordIndex,
        vectors: VectorStore | None,
    ) -> None:
        self.name = name
        self.method = method
        self.embedder = embedder
        """What queries are to be embedded with; None where a search needs no vector."""
        self.documents = documents
        self.passages = passages
        self._words = words
        self._vectors = vectors
        self._doc_ids = {document.doc_id for document in documents}
        self._positions = {passage.id: position for position, passage in enumerate(passages)}

    async def search(
        self, query: str, vector: NDArray[Any] | None, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """The `top_k` best passages with their score, best first, corpus order where scores are equal.

        `vector` is the query's, shape (d,); BM25 ignores it, the others raise ValueError without it. `doc_ids` chooses
        the documents before anything is ranked; ids that do not exist choose nothing. Scores: `dense` cosine
        similarity, `bm25` above 0 and unbounded (passages without a word of the query are left out), `hybrid` 0..1.
        """
        return await asyncio.to_thread(self._search, query, vector, top_k, doc_ids)

    def close(self) -> None:
        """Let go of the files; the index cannot be searched afterwards."""
        if self._vectors is not None:
            self._vectors.close()

    def _search(
        self, query: str, vector: NDArray[Any] | None, top_k: int, doc_ids: Sequence[str] | None
    ) -> tuple[Passage, ...]:
        chosen = self._doc_ids if doc_ids is None else self._doc_ids.intersection(doc_ids)
        allowed = np.array([passage.doc_id in chosen for passage in self.passages], dtype=bool)
        if top_k < 1 or not allowed.any():
            return ()
        count = max(top_k, _CANDIDATES)
        if self._vectors is None:
            scores = {at: score for at, score in self._by_words(query, allowed, count).items() if score > 0}
        elif vector is None:
            raise ValueError(f"a search by {self.method} needs the vector of the query")
        else:
            where = None if len(chosen) == len(self._doc_ids) else chosen
            near = {self._positions[name]: score for name, score in self._vectors.nearest(vector, count, where)}
            near = {at: near[at] for at in _best(near, count)}
            scores = near if self.method == "dense" else _fused(near, self._by_words(query, allowed, count))
        best = _best(scores, top_k)
        return tuple(dataclasses.replace(self.passages[at], score=round(scores[at], _DIGITS)) for at in best)

    def _by_words(self, query: str, allowed: NDArray[np.bool_], count: int) -> dict[int, float]:
        positions = np.flatnonzero(allowed)
        scores = self._words.scores(query)[positions]
        best = np.argsort(-scores, kind="stable")[:count]
        return {int(positions[at]): float(scores[at]) for at in best}


def _best(scores: dict[int, float], count: int) -> list[int]:
    """The `count` positions with the highest scores, corpus order where they are equal."""
    return sorted(scores, key=lambda at: (-round(scores[at], _DIGITS), at))[:count]


def _fused(nearest: dict[int, float], by_words: dict[int, float]) -> dict[int, float]:
    """The weighted mean of both scores, each scaled to 0..1 over its own candidates; 0 for one that is no candidate."""
    dense, words = _scaled(nearest), _scaled(by_words)
    positions = [*dense, *(position for position, score in by_words.items() if score > 0 and position not in dense)]
    return {
        position: _DENSE_WEIGHT * dense.get(position, 0) + (1 - _DENSE_WEIGHT) * words.get(position, 0)
        for position in positions
    }


def _scaled(scores: dict[int, float]) -> dict[int, float]:
    low, high = min(scores.values(), default=0), max(scores.values(), default=0)
    if high - low < SAME:
        return dict.fromkeys(scores, float(high > 0))
    return {position: (score - low) / (high - low) for position, score in scores.items()}


def _key(documents: Sequence[Document], embedder: Embedder | None, max_tokens: int) -> str:
    digest = hashlib.sha256(json.dumps([_FORMAT, max_tokens, embedder and embedder.name]).encode())
    for document in documents:
        digest.update(json.dumps([document.doc_id, document.title, document.text]).encode())
    return digest.hexdigest()[:24]


def _open(
    home: Path, documents: tuple[Document, ...], queries: Embedder | None, method: Method
) -> DocumentIndex | None:
    """The finished index in `home`, with `queries` to embed its queries; None if there is none that can be read."""
    try:
        passages = _load_passages(home / "passages.json", documents)
        words = WordIndex.load(home / "bm25", len(passages))
        vectors = None if queries is None else VectorStore.open(home / "chroma", len(passages))
    except (OSError, ValueError, LookupError, StoreError):
        return None
    return DocumentIndex(f"{method} {home.name[:12]}", method, queries, documents, passages, words, vectors)


async def _build(
    home: Path, documents: tuple[Document, ...], embedder: Embedder | None, max_tokens: int, progress: Progress
) -> None:
    unfinished = home.with_suffix(".new")
    _remove(unfinished)  # of a process that was killed
    unfinished.mkdir()
    passages = await asyncio.to_thread(lambda: [p for document in documents for p in split(document, max_tokens)])
    texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for passage in passages]
    await asyncio.to_thread(WordIndex.build, texts, unfinished / "bm25")
    if embedder is not None:
        with closing(await asyncio.to_thread(VectorStore.create, unfinished / "chroma")) as vectors:
            for start in range(0, len(passages), _BATCH):
                batch = passages[start : start + _BATCH]
                rows = await embedder.embed(texts[start : start + _BATCH])
                await asyncio.to_thread(vectors.add, batch, rows)
                progress(start + len(batch), len(passages))
    positions = {document.doc_id: position for position, document in enumerate(documents)}
    spans = [[positions[passage.doc_id], passage.start, passage.end] for passage in passages]
    (unfinished / "passages.json").write_text(json.dumps(spans))
    _remove(home)  # damaged, or of an older version
    unfinished.rename(home)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _load_passages(path: Path, documents: Sequence[Document]) -> tuple[Passage, ...]:
    passages: list[Passage] = []
    number, last = 0, -1
    for position, start, end in json.loads(path.read_text()):
        number, last = number + 1 if position == last else 0, position
        passages.append(passage_of(documents[position], number, start, end))
    return tuple(passages)
