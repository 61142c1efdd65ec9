"""Embedder that hashes bags of words: no weights, no download, the same vector on every machine.

    connect("hashing-256").embed(["the ball is round"])

Similarity is word overlap, which a real embedder has to beat. Tests that do not depend on meaning use it too. Every
word is counted in one of the `hashing-<dimensions>` slots.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from agentlab.core.errors import ConfigError
from agentlab.core.protocols import Embedder
from agentlab.core.vectors import Vectors, pack

_WORD = re.compile(r"\w+")
IS_QUICK = True
"""A vector takes so little time that a queue or a thread costs more."""


def connect(name: str) -> Embedder:
    """Build the embedder called `hashing-<dimensions>`, dimensions from 1 to 65536."""
    match = re.fullmatch(r"hashing-([1-9]\d{0,4})", name)
    if match is None or int(match[1]) > 65_536:
        raise ConfigError(f"embedder 'hashing/{name}' is unknown: write hashing/hashing-256 (the number of dimensions)")
    return HashingEmbedder(name, int(match[1]))


class HashingEmbedder:
    def __init__(self, name: str, dimensions: int) -> None:
        self.name = f"hashing/{name}"
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 rows of unit length, shape (len(texts), dimensions)."""
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            rows[row] = _vector(text, self.dimensions)
        return rows


@functools.lru_cache(maxsize=256)
def _vector(text: str, dimensions: int) -> Vectors:
    """Return the vector of one text, shape (dimensions,); it is cached, so callers must not change it."""
    # Texts have about a dozen words: plain Python takes a third of the time that arrays take.
    weights: dict[int, float] = {}
    for word, count in Counter(_WORD.findall(text.lower()) or [text]).items():
        slot = _number(word) % dimensions
        weights[slot] = weights.get(slot, 0.0) + 1 + math.log(count)
    length = math.hypot(*weights.values())
    vector = np.zeros(dimensions, dtype=np.float32)
    vector[list(weights)] = pack(np.array([weight / length for weight in weights.values()]))
    return vector


@functools.lru_cache(maxsize=4096)
def _number(word: str) -> int:
    """Return a hash of the word that is the same on every machine, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
