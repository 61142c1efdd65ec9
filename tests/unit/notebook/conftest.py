"""A Lab over a small data set about goals, with whatever model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentlab.lab.lab import Lab
from support.widgets import EVIL


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "goals"
    folder.mkdir()
    documents = [
        {"doc_id": "field", "title": f"The field {EVIL}", "text": f"The goal is 7.32 m wide. {EVIL}"},
        {"doc_id": "ball", "title": "The ball", "text": "The ball is round."},
    ]
    conversation = {
        "id": "goals-1",
        "turns": [{"user": "How wide is a goal?", "reference_answers": ["7.32 m"], "relevant_doc_ids": ["field"]}],
    }
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents), encoding="utf-8")
    (folder / "conversations.jsonl").write_text(json.dumps(conversation) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def lab_over(dataset: Path, own_home: Path) -> Iterator[Callable[..., Lab]]:
    labs: list[Lab] = []

    def make(model, **overrides) -> Lab:
        labs.append(Lab(datasets=[str(dataset)], model=model, embedder="hashing/hashing-256", **overrides))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
