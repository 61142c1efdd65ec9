"""The hashing embedder is word overlap, and senseless names are refused."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError
from agentlab.models.embedders import hashing, local


async def test_hashing_is_word_overlap() -> None:
    embedder = hashing.connect("hashing-512")
    rows = await embedder.embed(["the ball is round", "round is THE ball", "nothing shared here"])
    assert rows[0] @ rows[1] == pytest.approx(1, abs=1e-3)
    assert rows[0] @ rows[2] == 0
    assert embedder.name == "hashing/hashing-512"


@pytest.mark.parametrize("name", ["hashing", "hashing-0", "hashing-99999", "hashing-x"])
def test_senseless_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="hashing-256"):
        hashing.connect(name)
    with pytest.raises(ConfigError, match="all-minilm-l6-v2"):
        local.connect(name)
