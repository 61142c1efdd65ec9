"""Memory sets: memory stores the messages of `sessions.jsonl`, then each question of `questions.jsonl` is asked alone.

    {"conversation_id": "ann", "session_id": "s1", "date": "2026-01-05 11:00", "speakers": ["Ann", "Bo"],
     "turns": [{"id": "s1:1", "speaker": "Ann", "text": "I play the oboe now."}]}
    {"id": "q1", "conversation_id": "ann", "question": "What does Ann play?", "category": "single-hop",
     "speaker": {"id": "77", "name": "Bo"},
     "reference_answers": ["the oboe"], "unanswerable": false, "evidence_ids": ["s1"], "source": "", "licence": ""}

A question becomes a conversation of one turn, with an empty history, at the date of the last session. It reads a
snapshot of the memory, so no question sees the writes of another. `evidence_ids` name sessions or single turns.

Sessions are stored in the order of their dates, in one of two ways (`ingest` in the spec):

* `verbatim`: each message becomes one fact, with date and speaker, under the id of its turn. No model is called, and
  the embeddings count as no flow's cost, as for an index. This happens once for all flows with the same backend.
* `flow`: each message is a user turn, for which the flow runs only `write_memory(turn, session)` of its file. This
  happens once for each flow and epoch. Messages of a speaker `agent` or `assistant` only enter the history. The ledger
  has the calls under the conversation `ingest:<conversation>`, so the flow's totals include them. A turn that fails is
  marked `ingest_failed` and does not change the memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, field_validator

from agentlab.core.errors import DatasetError
from agentlab.core.jsonl import read_rows
from agentlab.data.conversations import INGEST_PREFIX, Conversation, Speaker, StrictModel, Turn, is_date

MEMORY_SET = ("sessions.jsonl", "questions.jsonl")
"""The files of a memory set."""


class MemoryTurn(StrictModel):
    id: str = Field(min_length=1, max_length=500)
    speaker: str
    text: str


class MemorySession(StrictModel):
    conversation_id: str
    session_id: str
    date: str
    speakers: list[str] = Field([])
    turns: list[MemoryTurn]

    @field_validator("date")
    @classmethod
    def _readable(cls, date: str) -> str:
        # Some sessions of public sets have a date without a time, written as "2026-04-08 :".
        for part in (date, date[:10]):
            if is_date(part):
                return part
        raise ValueError(f"{date!r} is not a date such as 2026-01-05 11:00")

    @property
    def date_time(self) -> datetime:
        """Date and time of the session, without an offset, so that any two can be compared."""
        return datetime.fromisoformat(self.date).replace(tzinfo=None)


class QuestionRow(StrictModel):
    id: str = Field(min_length=1)
    conversation_id: str
    question: str
    speaker: Speaker | None = None
    category: str = ""
    reference_answers: list[str] = Field([])
    unanswerable: bool = False
    evidence_ids: list[str] = Field([])
    source: str = ""
    licence: str = ""


class Question(Conversation):
    """A question to a memory, as a conversation of one turn."""

    memory_of: str
    """The conversation of `sessions.jsonl` that is asked about."""


def read_memory_set(folder: Path) -> tuple[list[tuple[int, Question]], dict[str, list[MemorySession]]]:
    """Return the questions with their lines, and the sessions by conversation, in order of their dates.

    Raises DatasetError with file, line and key.
    """
    for name in MEMORY_SET:
        if not (folder / name).is_file():
            raise DatasetError(f"the memory set has no {name}", folder)
    by_conversation: dict[str, list[MemorySession]] = defaultdict(list)
    turn_ids: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line, session in read_rows(folder / "sessions.jsonl", MemorySession):
        ids_so_far = turn_ids[session.conversation_id]
        turns = [turn.id for turn in session.turns]
        ids = {"session_id": session.session_id, **{f"turns.{n}.id": name for n, name in enumerate(turns)}}
        for key, name in ids.items():
            # A session with one turn may have the same id as this turn.
            if name in ids_so_far or (key != "session_id" and turns.count(name) > 1):
                problem = f"{key}: duplicate {name!r} in conversation {session.conversation_id!r}"
                raise DatasetError(problem, folder / "sessions.jsonl", line)
        ids_so_far |= {name: [name] for name in turns} | {session.session_id: turns}
        by_conversation[session.conversation_id].append(session)
    for sessions in by_conversation.values():
        sessions.sort(key=lambda session: session.date_time)
    return _read_questions(folder / "questions.jsonl", by_conversation, turn_ids), dict(by_conversation)


def _read_questions(
    file: Path, sessions: Mapping[str, Sequence[MemorySession]], turn_ids: Mapping[str, Mapping[str, list[str]]]
) -> list[tuple[int, Question]]:
    """Read the questions; `turn_ids` maps each id of a session or turn to its turns, by conversation."""
    questions = []
    for line, row in read_rows(file, QuestionRow, "id"):
        if row.conversation_id not in sessions:
            raise DatasetError(f"conversation_id: {row.conversation_id!r} has no session", file, line)
        ids = turn_ids[row.conversation_id]
        if missing := [name for name in row.evidence_ids if name not in ids]:
            raise DatasetError(f"evidence_ids: {missing[0]!r} is not a session or turn of its conversation", file, line)
        evidence = [ids[name] for name in row.evidence_ids]
        expected = row.model_dump(include={"speaker", "reference_answers", "unanswerable"})
        turn = Turn(user=row.question, metadata={"evidence_turns": evidence} if evidence else {}, **expected)
        question = Question(
            **row.model_dump(include={"id", "source", "licence"}),
            turns=[turn],
            metadata={"category": row.category, "today": sessions[row.conversation_id][-1].date_time.isoformat()},
            memory_of=row.conversation_id,
        )
        questions.append((line, question))
    if not questions:
        raise DatasetError("the file contains no question", file)
    return questions


def ingest_name(dataset: str, question: Question) -> str:
    """Return the name of the conversation in which a flow fills its memory."""
    return f"{INGEST_PREFIX}{dataset}/{question.memory_of}"
