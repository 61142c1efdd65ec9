"""Packs of other people's answers, small ones made for a test and the public ones where they are at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

PACKS = Path(__file__).parents[2].parent / "shared" / "published"
needs_packs = pytest.mark.skipif(not PACKS.is_dir(), reason="the published packs are not beside this checkout")


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def row(system: str, conversation: str, answer: str | None, turn: int = 0, **more: Any) -> dict[str, Any]:
    return {"system": system, "conversation": conversation, "turn": turn, "epoch": 0, "answer": answer, **more}


def write_questions(folder: Path, references: Mapping[str, list[str]], **metadata: Any) -> Path:
    """A data set of conversations of one turn, or of as many as they have references."""
    folder.mkdir(parents=True, exist_ok=True)
    conversations = [
        {
            "id": name,
            "turns": [{"user": f"{name} {n}?", "reference_answers": [text]} for n, text in enumerate(texts)],
            "metadata": metadata,
        }
        for name, texts in references.items()
    ]
    write_rows(folder / "conversations.jsonl", conversations)
    return folder
