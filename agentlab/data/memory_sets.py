"""Memory sets: what was said in `sessions.jsonl` goes into memory, then `questions.jsonl` are asked, each alone.

    {"conversation_id": "ann", "session_id": "s1", "date": "2026-01-05 11:00", "speakers": ["Ann", "Bo"],
     "turns": [{"id": "s1:1", "speaker": "Ann", "text": "I play the oboe now."}]}
    {"id": "q1", "conversation_id": "ann", "question": "What does Ann play?", "category": "single-hop",
     "speaker": {"id": "77", "name": "Bo"},
     "reference_answers": ["the oboe"], "unanswerable": false, "evidence_ids": ["s1"], "source": "", "licence": ""}

A question becomes a conversation of one turn, asked with an empty history at the date of the last session, against a
snapshot of the memory: what one question writes does not reach the next. `evidence_ids` name sessions or single turns.

The sessions are written in the order of their dates, in one of two ways (`ingest` in the spec):

* `verbatim`: everything said is one fact, with date and speaker, under the id of its turn. No model is asked, and the
  embeddings are nobody's cost, as for an index. Once for all flows with the same backend.
* `flow`: everything said is a user turn of which the flow does its memory step alone (`write_memory(turn, session)` in
  its file), once for each flow and epoch; what a speaker called `agent` or `assistant` said only enters the history.
  It is in the ledger under a conversation of its own, `ingest:<conversation>`, and so in the flow's totals. A turn that
  fails is noted there (`ingest_failed`) and leaves memory as it was.
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
"""The files of one."""


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
        # Some sessions of public sets have a day and no time, written as "2026-04-08 :".
        for part in (date, date[:10]):
            if is_date(part):
                return part
        raise ValueError(f"{date!r} is not a date such as 2026-01-05 11:00")

    @property
    def said_at(self) -> datetime:
        """When it was told; an offset is left out, so that any two can be compared."""
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


def read_memory_set(folder: Path) -> tuple[list[tuple[int, Question]], dict[str, list[MemorySession]]]:
    """The questions, each with its line, and by conversation what is told before them.

    Raises DatasetError naming file, line and key.
    """
    for name in MEMORY_SET:
        if not (folder / name).is_file():
            raise DatasetError(f"the memory set has no {name}", folder)
    told: dict[str, list[MemorySession]] = defaultdict(list)
    places: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line, session in read_rows(folder / "sessions.jsonl", MemorySession):
        known = places[session.conversation_id]
        turns = [turn.id for turn in session.turns]
        ids = {"session_id": session.session_id, **{f"turns.{n}.id": name for n, name in enumerate(turns)}}
        for key, name in ids.items():
            # A session of one turn may be called as that is.
            if name in known or (key != "session_id" and turns.count(name) > 1):
                problem = f"{key}: {name!r} is there twice in conversation {session.conversation_id!r}"
                raise DatasetError(problem, folder / "sessions.jsonl", line)
        known |= {name: [name] for name in turns} | {session.session_id: turns}
        told[session.conversation_id].append(session)
    for sessions in told.values():
        sessions.sort(key=lambda session: session.said_at)
    return _read_questions(folder / "questions.jsonl", told, places), dict(told)


def _read_questions(
    file: Path, told: Mapping[str, Sequence[MemorySession]], places: Mapping[str, Mapping[str, list[str]]]
) -> list[tuple[int, Question]]:
    """`places` has the ids of the turns that each id of a session or a turn stands for, by conversation."""
    questions = []
    for line, row in read_rows(file, QuestionRow, "id"):
        if row.conversation_id not in told:
            raise DatasetError(f"conversation_id: {row.conversation_id!r} has no session", file, line)
        known = places[row.conversation_id]
        missing = [name for name in row.evidence_ids if name not in known]
        if missing:
            raise DatasetError(f"evidence_ids: {missing[0]!r} is neither a session nor a turn of it", file, line)
        evidence = [known[name] for name in row.evidence_ids]
        asked = Turn(
            user=row.question,
            speaker=row.speaker,
            reference_answers=row.reference_answers,
            unanswerable=row.unanswerable,
            metadata={"evidence_turns": evidence} if evidence else {},
        )
        question = Question(
            id=row.id,
            turns=[asked],
            source=row.source,
            licence=row.licence,
            metadata={"category": row.category, "today": told[row.conversation_id][-1].said_at.isoformat()},
            memory_of=row.conversation_id,
        )
        questions.append((line, question))
    if not questions:
        raise DatasetError("the file holds no question", file)
    return questions


def ingest_name(dataset: str, question: Question) -> str:
    """The conversation in whose name a flow fills its memory."""
    return f"{INGEST_PREFIX}{dataset}/{question.memory_of}"
