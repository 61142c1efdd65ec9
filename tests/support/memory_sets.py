"""A small memory set: three sessions of two conversations, and four questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def session_row(session: str, date: str, *turns: tuple[str, str], of: str = "ann") -> dict[str, Any]:
    rows = [{"id": f"{session}:{n}", "speaker": who, "text": text} for n, (who, text) in enumerate(turns, 1)]
    speakers = sorted({who for who, _ in turns})
    return {"conversation_id": of, "session_id": session, "date": date, "speakers": speakers, "turns": rows}


def question_row(
    name: str, question: str, *answers: str, evidence: tuple[str, ...] = (), of: str = "ann"
) -> dict[str, Any]:
    about = {"category": "single-hop" if answers else "unanswerable", "unanswerable": not answers}
    row = {"reference_answers": answers, "evidence_ids": evidence, "source": "ours", "licence": "Apache-2.0"}
    return {"id": name, "conversation_id": of, "question": question, **about, **row}


SESSIONS = [
    session_row(
        "late", "2026-03-02 10:00", ("Ann", "I sold my oboe and bought a cello"), ("agent", "A fine instrument")
    ),
    session_row("early", "2026-01-05 09:30", ("Ann", "I play the oboe"), ("Bo", "I keep bees near Ulm")),
    session_row("other", "2026-02-01", ("Cleo", "My boat is called Mistral"), of="cleo"),
]
QUESTIONS = [
    question_row("q1", "Who keeps bees near Ulm?", "Bo", evidence=("early",)),
    question_row(
        "q2", "Does Ann play the oboe, or the cello that Ann bought?", "a cello", evidence=("late:1", "early")
    ),
    question_row("q3", "What is the name of the dog?"),
    question_row("q4", "What is the boat called?", "Mistral", evidence=("other",), of="cleo"),
]


def write(folder: Path, sessions: list[Any] = SESSIONS, questions: list[Any] = QUESTIONS) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in (("sessions", sessions), ("questions", questions)):
        text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder
