"""Embedder for any sentence-transformers model, by its name on the hub or its folder.

    connect("BAAI/bge-small-en-v1.5")
    connect("./my-finetuned-model", device="cuda")

Needs the extra `sentence-transformers`, which installs torch. The name of a model in a folder ends with a hash of its
weights, because a trained model keeps its folder. Only the text itself is embedded: the prefixes that some
models expect before a query or a passage are not added.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentlab.core.errors import ConfigError, needs
from agentlab.core.protocols import Embedder
from agentlab.core.vectors import Vectors, unit_rows


def identity(name: str) -> tuple[str, str]:
    """Return the full name of the model, for a folder with a hash of its weights."""
    folder = Path(name)
    files = sorted(file for file in folder.rglob("*.*") if file.suffix in (".safetensors", ".bin"))
    if not files:
        return f"sentence_transformers/{name}", ""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return f"sentence_transformers/{name}@{digest.hexdigest()[:12]}", ""


def connect(name: str, *, device: str = "cpu") -> Embedder:
    """Load the model `name` onto `device`; raises MissingExtra without the library, ConfigError without the model."""
    with needs("sentence-transformers embeddings", "sentence-transformers"):
        from sentence_transformers import SentenceTransformer
    try:
        model = SentenceTransformer(name, device=device)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"embedder 'sentence_transformers/{name}' cannot be loaded: {reason}") from error
    return SentenceTransformersEmbedder(name, model)


class SentenceTransformersEmbedder:
    def __init__(self, name: str, model: Any) -> None:
        self.name = identity(name)[0]
        self._model = model
        self._lock = threading.Lock()
        self.dimensions = len(self._run(["dimensions"])[0])

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 rows of unit length, shape (len(texts), dimensions)."""
        return await asyncio.to_thread(self._run, texts) if texts else np.zeros((0, self.dimensions), dtype=np.float32)

    def _run(self, texts: Sequence[str]) -> Vectors:
        with self._lock:
            # A tokenizer cannot encode lone surrogates; they carry no meaning to embed.
            readable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
            return unit_rows(self._model.encode(readable, show_progress_bar=False))
