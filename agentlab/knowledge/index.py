"""The index of a corpus: built once, stored on disk by the hash of its content, then shared read-only.

    index = await open_index(documents, embedder, folder=home() / "indexes", method="hybrid")
    vector = (await embedder.embed([query]))[0]
    passages = await index.search(query, vector, top_k=4, doc_ids=["law-11"])

`dense` ranks by cosine similarity, `bm25` by words (bm25s, no embedder), `hybrid` by the mean of both, each scaled to
0..1 over its 100 best candidates. The search is exact: 50,000 passages take some milliseconds. Title and text of a
passage are indexed.

With the defaults, .98, .91 and .75 of the relevant documents of squad2, pyfaq and mtrag_human are in the first five.
The goals (.97, .86, .72) also hold for passages of 180 to 240 tokens (`evals/bench/retrieval.py`).

An index is built under a lock in a temporary folder, then moved to `<folder>/<key>/`. So an index is always complete,
and it never changes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from agentlab.core.errors import ConfigError, os_errors_as
from agentlab.core.messages import Passage
from agentlab.core.protocols import Embedder
from agentlab.data.documents import Document
from agentlab.knowledge.bm25 import Bm25Index
from agentlab.knowledge.passages import passage_of, searched_text, split

Method = Literal["dense", "bm25", "hybrid"]
Progress = Callable[[int, int], None]
"""Function of the number of embedded passages and the total."""
DEFAULT_MAX_TOKENS = 200
_Content = tuple[tuple[Passage, ...], Bm25Index, NDArray[np.float32]]
"""The stored parts of an index: passages, their words, their vectors."""

_FORMAT = 1
"""Raise this number when the same input gives other passages."""
_WORDS = "bm25-2"
"""Folder of the words; another name when the same passages have other words."""
_DENSE_WEIGHT = 0.5
_CANDIDATES = 100
_BATCH = 256
"""Passages per call of the embedder."""
_DIGITS = 5
"""Digits of a score; float32 similarities differ in the seventh digit between processors."""
_SAME = 10**-_DIGITS


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
    """Open the index of `documents` in passages of at most `max_tokens`; builds it in `folder` if it is missing.

    `embedder` embeds the passages, `query_embedder` (default: the same) the queries; `bm25` uses neither. Raises
    ConfigError for an unknown method, a missing embedder or a folder that cannot be written, and the errors of the
    embedder. An incomplete index is never used.
    """
    from filelock import AsyncFileLock

    if method not in ("dense", "bm25", "hybrid"):
        raise ConfigError(f"retrieval method {method!r} is unknown: choose dense, bm25 or hybrid")
    if method == "bm25":
        embedder = None
    elif embedder is None:
        raise ConfigError(f"retrieval method {method!r} needs an embedder: name one, or use bm25")
    documents = tuple(documents)
    home = folder / corpus_key(documents, embedder, max_tokens)
    with os_errors_as(ConfigError, f"{home}: cannot build or read the index here (", ")"):
        content = await asyncio.to_thread(_read, home, documents, embedder)
        if content is None:
            folder.mkdir(parents=True, exist_ok=True)
            async with AsyncFileLock(f"{home}.lock"):
                # Another process may have built it while this one waited for the lock.
                content = await asyncio.to_thread(_read, home, documents, embedder)
                content = content or await _build(home, documents, embedder, max_tokens, progress)
    passages, words, vectors = content
    queries = None if embedder is None else query_embedder or embedder
    return DocumentIndex(f"{method} {home.name[:12]}", method, queries, documents, passages, words, vectors)


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentIndex:
    """A read-only index of a corpus; `open_index` creates it."""

    name: str
    method: Method
    embedder: Embedder | None
    """Embedder of the queries; None if a search needs no vector."""
    documents: tuple[Document, ...]
    passages: tuple[Passage, ...]
    _words: Bm25Index
    _vectors: NDArray[np.float32]
    """Vectors of unit length, shape (passages, d); (0, 0) if a search needs none."""

    async def search(
        self, query: str, vector: NDArray[Any] | None, *, top_k: int, doc_ids: Sequence[str] | None = None
    ) -> tuple[Passage, ...]:
        """Return the `top_k` best passages with their scores, best first; equal scores are in corpus order.

        `vector` is the vector of the query, shape (d,); BM25 ignores it, the others raise ValueError without it.
        `doc_ids` limits the search to these documents; unknown ids are ignored. A score is the cosine similarity
        (`dense`), a number above 0 (`bm25`, only passages with a word of the query) or 0..1 (`hybrid`).
        """
        return await asyncio.to_thread(self._search, query, vector, top_k, doc_ids)

    def _search(
        self, query: str, vector: NDArray[Any] | None, top_k: int, doc_ids: Sequence[str] | None
    ) -> tuple[Passage, ...]:
        chosen = None if doc_ids is None else set(doc_ids)
        among = np.flatnonzero([chosen is None or passage.doc_id in chosen for passage in self.passages])
        if top_k < 1 or not among.size:
            return ()
        count = max(top_k, _CANDIDATES)
        by_words = {} if self.method == "dense" else _top_positions(self._words.scores(query), among, count)
        if self.method == "bm25":
            scores = {at: score for at, score in by_words.items() if score > 0}
        elif vector is None:
            raise ValueError(f"a search by {self.method} needs the vector of the query")
        else:
            # einsum sums each row in the same order, so equal vectors have equal scores; a matrix product may not.
            query_vector = _normalise(np.asarray(vector, dtype=np.float32))
            scores = _top_positions(np.einsum("nd,d->n", self._vectors, query_vector), among, count)
            if self.method == "hybrid":
                scores = _fuse_scores(scores, by_words)
        best = sorted(scores, key=lambda at: (-round(scores[at], _DIGITS), at))[:top_k]
        return tuple(replace(self.passages[at], score=round(scores[at], _DIGITS)) for at in best)


def _top_positions(scores: NDArray[np.float32], among: NDArray[np.intp], count: int) -> dict[int, float]:
    """Return the `count` highest scores of the positions `among`, by position; equal scores keep their order."""
    some = scores[among].astype(np.float64)
    best = np.argsort(-some.round(_DIGITS), kind="stable")[:count]
    return {int(among[at]): float(some[at]) for at in best}


def _fuse_scores(nearest: dict[int, float], by_words: dict[int, float]) -> dict[int, float]:
    """Return the weighted mean of both scores, each scaled to 0..1 over its candidates; others count 0."""
    dense, words = _scaled(nearest), _scaled(by_words)
    positions = [*dense, *(position for position, score in by_words.items() if score > 0 and position not in dense)]
    return {
        position: _DENSE_WEIGHT * dense.get(position, 0) + (1 - _DENSE_WEIGHT) * words.get(position, 0)
        for position in positions
    }


def _scaled(scores: dict[int, float]) -> dict[int, float]:
    low, high = min(scores.values()), max(scores.values())
    if high - low < _SAME:
        return dict.fromkeys(scores, float(high > 0))
    return {position: (score - low) / (high - low) for position, score in scores.items()}


def _normalise(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of length 1 along the last axis; zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def corpus_key(documents: Sequence[Document], embedder: Embedder | None, max_tokens: int) -> str:
    """Return the key of an index: a hash of the documents, the embedder's name and the length of passages."""
    digest = hashlib.sha256(json.dumps([_FORMAT, max_tokens, embedder and embedder.name]).encode())
    for document in documents:
        digest.update(json.dumps([document.doc_id, document.title, document.text]).encode())
    return digest.hexdigest()[:24]


def _read(home: Path, documents: Sequence[Document], embedder: Embedder | None) -> _Content | None:
    """Return the stored index in `home`; None if it is missing, damaged or of another embedder."""
    try:
        passages: list[Passage] = []
        number, last = 0, -1
        for position, start, end in json.loads((home / "passages.json").read_text()):
            number, last = number + 1 if position == last else 0, position
            passages.append(passage_of(documents[position], number, start, end))
        words = Bm25Index.load(home / _WORDS, len(passages))
        vectors = np.load(home / "vectors.npy")
    except (OSError, EOFError, ValueError, LookupError):
        return None
    return (tuple(passages), words, vectors) if embedder is None or len(vectors) == len(passages) else None


async def _build(
    home: Path, documents: Sequence[Document], embedder: Embedder | None, max_tokens: int, progress: Progress
) -> _Content:
    unfinished = home.with_suffix(".new")
    if unfinished.exists():  # a process was killed while building
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    passages = await asyncio.to_thread(lambda: [p for document in documents for p in split(document, max_tokens)])
    texts = [searched_text(passage) for passage in passages]
    words = await asyncio.to_thread(Bm25Index.build, texts, unfinished / _WORDS)
    rows = []
    if embedder is not None:
        for start in range(0, len(texts), _BATCH):
            rows.append(await embedder.embed(texts[start : start + _BATCH]))
            progress(min(start + _BATCH, len(texts)), len(texts))
    vectors = _normalise(np.concatenate(rows)) if rows else np.zeros((0, 0), dtype=np.float32)
    np.save(unfinished / "vectors.npy", vectors)
    positions = {document.doc_id: position for position, document in enumerate(documents)}
    spans = [[positions[passage.doc_id], passage.start, passage.end] for passage in passages]
    (unfinished / "passages.json").write_text(json.dumps(spans))
    if home.exists():  # damaged, or of an older version
        shutil.rmtree(home)
    unfinished.rename(home)
    return tuple(passages), words, vectors
