"""The vectors of an index: a Chroma collection in a folder of its own, by cosine similarity.

Written by one process while the index is built and only read afterwards, because a client of Chroma does not see what
another process writes. The search is approximate (HNSW), but set so wide that it found all of the 100 nearest for each
of 349 questions to three data sets. The scores are the exact similarities of what it finds. Only where more passages
than asked for are equally near, as copies of one text are, all vectors are read and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from agentlab.core.chroma import open_client, open_collection
from agentlab.core.messages import Passage

_NAMES_AT_ONCE = 10_000
"""Documents in one filter; its SQLite takes 32,766 variables."""


SAME = 1e-5
"""Similarities that differ by less are equal: float32 differs in the seventh digit from one processor to the next."""


class StoreError(Exception):
    """The vectors on disk are not those of a finished build."""


class VectorStore:
    """The vectors of the passages in a Chroma collection of its own folder, found by passage id."""

    def __init__(self, client: Any, collection: Any) -> None:
        self._client = client
        self._collection = collection

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new, empty store."""
        client = open_client(folder)
        return cls(client, open_collection(client, "passages"))

    @classmethod
    def open(cls, folder: Path, size: int) -> Self:
        """The store of `size` vectors in `folder`; StoreError if it is not that."""
        if not folder.is_dir():
            raise StoreError(f"{folder} is not here")
        client = None
        try:
            client = open_client(folder)
            store = cls(client, client.get_collection("passages", embedding_function=None))
            count = store._collection.count()
        except Exception as error:  # whatever Chroma trips over, AttributeError for a database cut short
            if client is not None:
                client.close()
            raise StoreError(f"{folder}: {error}") from error
        if count != size:
            store.close()
            raise StoreError(f"{folder}: {count} vectors, not {size}")
        return store

    def add(self, passages: Sequence[Passage], vectors: NDArray[Any]) -> None:
        """Store one vector for each passage, at most 5,461 at once."""
        self._collection.add(
            ids=[passage.id for passage in passages],
            embeddings=vectors,
            metadatas=[{"doc_id": passage.doc_id} for passage in passages],
        )

    def nearest(self, vector: NDArray[Any], count: int, doc_ids: set[str] | None) -> list[tuple[str, float]]:
        """(passage id, cosine similarity) of the `count` nearest, of `doc_ids` only if given; nearest first.

        All of those that are as near as the last one come with it: which of them Chroma finds is a matter of chance.
        """
        if doc_ids is None:
            found = self._query(vector, count + 1, None)
        else:
            names, found = sorted(doc_ids), []
            for start in range(0, len(names), _NAMES_AT_ONCE):
                found += self._query(vector, count + 1, {"doc_id": {"$in": names[start : start + _NAMES_AT_ONCE]}})
            found.sort(key=lambda pair: -pair[1])
        if len(found) > count and found[count][1] > found[count - 1][1] - SAME:
            return self._as_near(vector, found[count - 1][1] - SAME, doc_ids)
        return found[:count]

    def _as_near(self, vector: NDArray[Any], least: float, doc_ids: set[str] | None) -> list[tuple[str, float]]:
        names, owners, vectors = self._all
        # Row by row in one order, so that equal vectors have equal scores; a product of matrices does not promise that.
        asked = np.asarray(vector, dtype=np.float32)
        scores = np.einsum("nd,d->n", vectors, asked / (np.linalg.norm(asked) or 1)).tolist()
        near = [
            (name, score)
            for name, owner, score in zip(names, owners, scores, strict=True)
            if score >= least and (doc_ids is None or owner in doc_ids)
        ]
        return sorted(near, key=lambda pair: -pair[1])

    @cached_property
    def _all(self) -> tuple[list[str], list[str], NDArray[np.float32]]:
        """Every passage's id and document, and the vectors, shape (n, d), of unit length."""
        stored = self._collection.get(include=["embeddings", "metadatas"])
        vectors = np.asarray(stored["embeddings"], dtype=np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return stored["ids"], [row["doc_id"] for row in stored["metadatas"]], vectors

    def _query(self, vector: NDArray[Any], count: int, where: dict[str, Any] | None) -> list[tuple[str, float]]:
        found = self._collection.query(query_embeddings=[vector], n_results=count, where=where, include=["distances"])
        return [(name, 1 - far) for name, far in zip(found["ids"][0], found["distances"][0], strict=True)]

    def close(self) -> None:
        """Let go of the files."""
        self._client.close()
