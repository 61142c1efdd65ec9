"""Data sets of conversations, written for a test."""

from __future__ import annotations

import json
from pathlib import Path

GOOD = {"id": "a", "turns": [{"user": "Hi", "reference_answers": ["Hello"]}]}


def write(folder: Path, *lines: object, corpus: list[dict] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "conversations.jsonl").write_text(text + "\n", encoding="utf-8")
    if corpus is not None:
        (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), encoding="utf-8")
    return folder
