"""Packs of answers of other systems: small ones made for a test, and the public ones if they are on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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
    """Write a data set; each conversation has as many turns as references."""
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


QUESTIONS = [f"q{n}" for n in range(12)]


def write_answers(folder: Path) -> Path:
    """Write twelve conversations of two turns; one system is right in one turn of each, the other never."""
    write_questions(folder, {key: ["blue", "forty two"] for key in QUESTIONS}, category="colours")
    rows = [
        row(system, name, "It is blue." if right else "red", turn, **more)
        for system, right, more in (
            ("once", True, {"llm_calls": 1, "input_tokens": 9, "output_tokens": 2, "seconds": 0.5, "cost_usd": 0.25}),
            ("never", False, {"llm_calls": 1, "retrieval_steps": 0, "published": {"em": 0, "route": "once"}}),
        )
        for name in QUESTIONS
        for turn in (0, 1)
    ]
    write_rows(folder / "predictions.jsonl", rows)
    return folder


def rewrite(folder: Path, change: Callable[[list[str]], Any]) -> None:
    """Rewrite the predictions; `change` gets their lines and edits them in place."""
    file = folder / "predictions.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    change(lines)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rewrite_rows(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrite the predictions; `change` returns new keys for a row."""
    file = folder / "predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    write_rows(file, [{**each, **change(each)} for each in rows])
