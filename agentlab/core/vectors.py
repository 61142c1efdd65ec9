"""Only form of a vector: a float32 row of unit length whose numbers all fit float16.

Recordings store float16. Live vectors are rounded the same way before use, so a replay searches with exactly the
vectors of the live run. The length of a row is 1 within 0.001.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


def unit_rows(raw: NDArray[Any]) -> Vectors:
    """Scale each row of `raw` (n, d) to length 1 and round it to float16 precision; a row of zeros stays zeros."""
    rows = np.asarray(raw, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return unpack(pack(rows / np.where(lengths > 0, lengths, 1)))


def pack(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """Return the stored form of `vectors`: float16, little-endian on every machine."""
    return vectors.astype("<f2")


def unpack(stored: NDArray[np.float16]) -> Vectors:
    return stored.astype(np.float32)
