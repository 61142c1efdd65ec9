"""sentence-transformers, by its own interface and as an extra."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from agentlab.core.errors import ConfigError, MissingExtra
from agentlab.models.embedders import sentence_transformers


async def test_sentence_transformers_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"\[sentence-transformers\]"):
        sentence_transformers.connect("any")


async def test_sentence_transformers_by_its_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    class SentenceTransformer:
        def __init__(self, name: str, device: str) -> None:
            if name == "nowhere":
                raise OSError("nowhere is not a local folder\nand not a model")
            self.seen = (name, device)

        def encode(self, texts: list[str], show_progress_bar: bool) -> Any:
            return np.array([[len(text), 1.0, 0.1] for text in texts], dtype=np.float32)

    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    embedder = sentence_transformers.connect("a/b")
    assert (embedder.name, embedder.dimensions) == ("sentence_transformers/a/b", 3)
    rows = await embedder.embed(["x" * n for n in range(70)])
    assert rows.shape == (70, 3)
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3
    assert (await embedder.embed([])).shape == (0, 3)
    with pytest.raises(
        ConfigError, match=r"'sentence_transformers/nowhere' cannot be loaded: nowhere is not a local folder$"
    ):
        sentence_transformers.connect("nowhere")
