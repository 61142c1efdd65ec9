"""Chroma on this machine, as the index of passages and the long-term memory both use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HNSW = {"space": "cosine", "max_neighbors": 64, "ef_construction": 400, "ef_search": 800, "num_threads": 1}
"""Chroma's own default is l2 distance.

One thread: with more, Chroma now and then loses a vector while it builds, and no two builds are the same.
"""


def open_client(folder: Path) -> Any:
    """A client of the store in `folder`; Chroma takes a second to load, so it is loaded here."""
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))


def open_collection(client: Any, name: str) -> Any:
    """The collection `name`, made where there is none; without Chroma's own embedder, which would be downloaded."""
    return client.get_or_create_collection(name, embedding_function=None, configuration={"hnsw": _HNSW})
