"""Bag-of-words hashing: no weights, no download, the same vector on every machine.

    connect("hashing-256").embed(["the ball is round"])

Two texts are as similar as they share words, so this is the word-overlap floor a real embedder has to beat, and the
embedder of tests that are not about meaning. Every word is counted in one of the `hashing-<dimensions>` slots.
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
"""A vector is computed at once: it is worth neither a queue nor a thread."""


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
    """Of one text, shape (dimensions,); a reference answer comes back with every flow and epoch. Not to be changed."""
    # Of a dozen words, scaled in plain Python: array by array it takes three times as long.
    counted: dict[int, float] = {}
    for word, count in Counter(_WORD.findall(text.lower()) or [text]).items():
        slot = _number(word) % dimensions
        counted[slot] = counted.get(slot, 0.0) + 1 + math.log(count)
    length = math.hypot(*counted.values())
    vector = np.zeros(dimensions, dtype=np.float32)
    vector[list(counted)] = pack(np.array([weight / length for weight in counted.values()]))
    return vector


@functools.lru_cache(maxsize=4096)
def _number(word: str) -> int:
    """The same on every machine, unlike `hash`."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
