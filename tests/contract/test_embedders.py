"""Every embedder by the same promises: unit rows, float16 values, no dependence on the batch."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.core.protocols import Embedder
from agentlab.models.embedders import hashing

TEXTS = ["The ball is round.", "A match lasts 90 minutes.", "", "The ball is round.", "\ud800 x", "word " * 3000]


@pytest.fixture(params=["hashing", pytest.param("local", marks=pytest.mark.real_model)])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "local":
        connected: Embedder = request.getfixturevalue("minilm")
        return connected
    return hashing.connect("hashing-64")


async def test_rows_are_unit_float16_and_independent_of_the_batch(embedder: Embedder) -> None:
    rows = await embedder.embed(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dimensions)
    assert rows.dtype == np.float32
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3
    assert (rows == rows.astype(np.float16)).all()
    assert (rows[0] == rows[3]).all()
    for text, row in zip(TEXTS, rows, strict=True):
        assert ((await embedder.embed([text]))[0] == row).all()
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)
