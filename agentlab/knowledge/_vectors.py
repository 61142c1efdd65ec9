"""The vectors of an index: a Chroma collection in a folder of its own, by cosine similarity.

Written by one process while the index is built and only read afterwards, because a client of Chroma does not see what
another process writes. The search is approximate (HNSW), but set so wide that it found all of the 100 nearest for each
of 349 questions to three data sets. The scores are the exact similarities of what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from agentlab.chroma_client import HNSW, open_client
from agentlab.messages import Passage

_NAMES_AT_ONCE = 10_000
"""Documents in one filter; its SQLite takes 32,766 variables."""


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
        # Chroma's own embedder would be downloaded.
        collection = client.create_collection("passages", embedding_function=None, configuration={"hnsw": HNSW})
        return cls(client, collection)

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
        """(passage id, cosine similarity) of the `count` nearest, of `doc_ids` only if given; nearest first."""
        if doc_ids is None:
            return self._query(vector, count, None)
        names = sorted(doc_ids)
        found: list[tuple[str, float]] = []
        for start in range(0, len(names), _NAMES_AT_ONCE):
            found += self._query(vector, count, {"doc_id": {"$in": names[start : start + _NAMES_AT_ONCE]}})
        return sorted(found, key=lambda pair: -pair[1])[:count]

    def _query(self, vector: NDArray[Any], count: int, where: dict[str, Any] | None) -> list[tuple[str, float]]:
        found = self._collection.query(query_embeddings=[vector], n_results=count, where=where, include=["distances"])
        return [(name, 1 - far) for name, far in zip(found["ids"][0], found["distances"][0], strict=True)]

    def close(self) -> None:
        """Let go of the files."""
        self._client.close()
