"""Texts that would run where something trusted them, and a data set that has one in every field."""

from __future__ import annotations

import json
from pathlib import Path

ATTACKS = (
    "<script>window.struck = 1</script>",
    '<img src=x onerror="window.struck = 1">',
    '<a href="javascript:window.struck = 1">press</a>',
    "<style>body { display: none }</style>",
    '<svg onload="window.struck = 1"></svg>',
    "[press](javascript:window.struck=1) </script><script>window.struck = 1</script>",
)


def write_hostile_set(folder: Path) -> None:
    """A conversation for each attack: the attack is its id, question, reference and document."""
    folder.mkdir(parents=True)
    conversations = [
        {
            "id": f"c{number} {attack}",
            "turns": [
                {
                    "user": f"{attack} How wide is it?",
                    "reference_answers": [attack],
                    "relevant_doc_ids": [f"d{number}"],
                    "metadata": {"kind": attack},
                }
            ],
            "metadata": {"category": attack},
        }
        for number, attack in enumerate(ATTACKS)
    ]
    documents = [{"doc_id": f"d{number}", "title": attack, "text": attack} for number, attack in enumerate(ATTACKS)]
    for name, rows in (("conversations", conversations), ("corpus", documents)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
