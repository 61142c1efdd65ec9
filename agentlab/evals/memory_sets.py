"""Memory sets: what was said in `sessions.jsonl` goes into memory, then `questions.jsonl` are asked, each alone.

    {"conversation_id": "ann", "session_id": "s1", "date": "2026-01-05 11:00", "speakers": ["Ann", "Bo"],
     "turns": [{"id": "s1:1", "speaker": "Ann", "text": "I play the oboe now."}]}
    {"id": "q1", "conversation_id": "ann", "question": "What does Ann play?", "category": "single-hop",
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

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from agentlab.errors import ConfigError, DatasetError, MemoryUnavailable
from agentlab.evals.datasets import Conversation, Dataset, Strict, Turn
from agentlab.evals.run_folder import Play
from agentlab.memory._away import Away
from agentlab.messages import UserTurn
from agentlab.protocols import Memory
from agentlab.rows import read_rows
from agentlab.trace import Trace

if TYPE_CHECKING:
    from agentlab.lab import Lab
    from agentlab.variants import Variant

log = logging.getLogger(__name__)
INGEST = "ingest:"
"""How the conversation begins in whose name a flow fills its memory."""
_AGENTS = ("agent", "assistant")


class ToldTurn(Strict):
    id: str = Field(min_length=1, max_length=500)
    speaker: str
    text: str


class ToldSession(Strict):
    conversation_id: str
    session_id: str
    date: str
    speakers: list[str] = Field([])
    turns: list[ToldTurn]

    @field_validator("date")
    @classmethod
    def _readable(cls, date: str) -> str:
        # Some sessions of public sets have a day and no time, written as "2026-04-08 :".
        for part in (date, date[:10]):
            try:
                datetime.fromisoformat(part)
            except ValueError:
                continue
            return part
        raise ValueError(f"{date!r} is not a date such as 2026-01-05 11:00")

    @property
    def moment(self) -> datetime:
        """When it was told; an offset is left out, so that any two can be compared."""
        return datetime.fromisoformat(self.date).replace(tzinfo=None)


class QuestionRow(Strict):
    id: str = Field(min_length=1)
    conversation_id: str
    question: str
    category: str = ""
    reference_answers: list[str] = Field([])
    unanswerable: bool = False
    evidence_ids: list[str] = Field([])
    source: str = ""
    licence: str = ""


class Question(Conversation):
    """A question to a memory, as a conversation of one turn."""

    memory_of: str


def load_memory_set(folder: Path) -> Dataset:
    """Read a memory set; raises DatasetError naming file, line and key."""
    for name in ("sessions.jsonl", "questions.jsonl"):
        if not (folder / name).is_file():
            raise DatasetError(f"the memory set has no {name}", folder)
    told: dict[str, list[ToldSession]] = defaultdict(list)
    places: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line, session in read_rows(folder / "sessions.jsonl", ToldSession):
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
        sessions.sort(key=lambda session: session.moment)
    return Dataset(folder.resolve().name, _read_questions(folder / "questions.jsonl", told, places), told=told)


def _read_questions(
    file: Path, told: Mapping[str, Sequence[ToldSession]], places: Mapping[str, Mapping[str, list[str]]]
) -> list[Question]:
    """`places` has the ids of the turns that each id of a session or a turn stands for, by conversation."""
    seen: dict[str, int] = {}
    questions = []
    for line, row in read_rows(file, QuestionRow):
        if row.id in seen:
            raise DatasetError(f"id: {row.id!r} stands in line {seen[row.id]} too", file, line)
        seen[row.id] = line
        if row.conversation_id not in told:
            raise DatasetError(f"conversation_id: {row.conversation_id!r} has no session", file, line)
        known = places[row.conversation_id]
        missing = [name for name in row.evidence_ids if name not in known]
        if missing:
            raise DatasetError(f"evidence_ids: {missing[0]!r} is neither a session nor a turn of it", file, line)
        evidence = [known[name] for name in row.evidence_ids]
        questions.append(_question(row, evidence, told[row.conversation_id][-1].moment))
    if not questions:
        raise DatasetError("the file holds no question", file)
    return questions


def _question(row: QuestionRow, evidence: list[list[str]], today: datetime) -> Question:
    asked = Turn(
        user=row.question,
        reference_answers=row.reference_answers,
        unanswerable=row.unanswerable,
        metadata={"evidence_turns": evidence} if evidence else {},
    )
    return Question(
        id=row.id,
        turns=[asked],
        source=row.source,
        licence=row.licence,
        metadata={"category": row.category, "today": today.isoformat()},
        memory_of=row.conversation_id,
    )


def check_memory(variants: Sequence[Variant], dataset: Dataset, ingest: str) -> None:
    """Raise ConfigError where no flow can be asked about what was told before.

    Beside one that can, a flow without a memory shows what is answered without one.
    """
    if not dataset.told:
        return
    remembering = [variant for variant in variants if variant.memory is not None]
    if not remembering:
        raise ConfigError(
            f"no flow of this run has a long-term memory, and {dataset.name!r} asks for what was told before"
        )
    for variant in remembering:
        if ingest == "flow" and variant.write_memory is None:
            raise ConfigError(
                f"flow {variant.label!r} has no step that writes to memory (`write_memory`); use ingest: verbatim"
            )


class BudgetSpent(Exception):
    """A memory could not be filled for what the budget holds."""


class Memories:
    """The memory of each conversation of a run. What a memory set tells is written once, by whoever asks first.

    `begin` opens the trace of a flow that fills its memory, `over_budget` says whether it may go on.
    """

    def __init__(self, lab: Lab, begin: Callable[[Play], Trace], over_budget: Callable[[], bool]) -> None:
        self._lab = lab
        self._begin = begin
        self._over_budget = over_budget
        self._due: Counter[Play] = Counter()
        """Questions to come, by the memory they are asked against."""
        self._filled: dict[Play, Memory] = {}
        self._filling: defaultdict[Play, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._open: defaultdict[Play, contextlib.AsyncExitStack] = defaultdict(contextlib.AsyncExitStack)

    def expect(self, variant: Variant, dataset: Dataset, conversation: Conversation, epoch: int) -> None:
        """Say before the first `memory` what will be asked for, so that a memory is let go after its last question."""
        if isinstance(conversation, Question) and variant.memory is not None:
            self._due[self._key(variant, dataset, conversation, epoch)] += 1

    @contextlib.asynccontextmanager
    async def memory(
        self, variant: Variant, dataset: Dataset, conversation: Conversation, epoch: int
    ) -> AsyncIterator[Memory | None]:
        """What the conversation has to itself: a fresh memory, or for a question a snapshot of the filled one.

        Raises BudgetSpent where filling it would cost more than is left.
        """
        if not isinstance(conversation, Question) or variant.memory is None:
            async with self._lab.memory(variant) as memory:
                yield memory
            return
        key = self._key(variant, dataset, conversation, epoch)
        async with self._filling[key]:
            if key not in self._filled:
                self._filled[key] = await self._fill(key, variant, dataset, conversation.memory_of)
        try:
            snapshot = await self._filled[key].snapshot()
        except MemoryUnavailable as gone:
            snapshot = Away(str(variant.memory), str(gone))
        try:
            yield snapshot
        finally:
            await snapshot.close()
            self._due[key] -= 1
            if not self._due[key]:
                await self._let_go(key)

    async def close(self) -> None:
        for key in list(self._open):
            await self._let_go(key)

    async def _let_go(self, key: Play) -> None:
        self._filled.pop(key, None)
        await self._open.pop(key).aclose()

    def _key(self, variant: Variant, dataset: Dataset, question: Question, epoch: int) -> Play:
        if self._lab.spec.ingest == "flow":
            return variant.label, ingest_name(dataset, question), epoch
        return str(variant.memory), ingest_name(dataset, question), 0

    async def _fill(self, key: Play, variant: Variant, dataset: Dataset, memory_of: str) -> Memory:
        memory = await self._open[key].enter_async_context(self._lab.memory(variant))
        assert memory is not None, "a flow without a memory is refused before the run"
        sessions = dataset.told[memory_of]
        if self._lab.spec.ingest == "flow":
            if self._over_budget():
                raise BudgetSpent
            await self._play(self._begin(key), variant, sessions, memory)
        else:
            try:
                await self._write_down(sessions, memory)
            except MemoryUnavailable as gone:
                # Should it come back, it is still empty: each question says that there is no memory, and is marked.
                log.warning("what was told could not be written to memory: %s", gone)
                return Away(str(variant.memory), str(gone))
        return memory

    async def _write_down(self, sessions: Sequence[ToldSession], memory: Memory) -> None:
        said = [(session, turn) for session in sessions for turn in session.turns]
        texts = [f"{session.date}, {turn.speaker}: {turn.text}" for session, turn in said]
        vectors = await self._lab.embedder.embed(texts)
        ids = iter([turn.id for _, turn in said])
        moments = [session.moment for session, _ in said]
        await memory.ingest(texts, vectors, created=moments, new_id=lambda: next(ids))

    async def _play(self, trace: Trace, variant: Variant, sessions: Sequence[ToldSession], memory: Memory) -> None:
        assert variant.write_memory is not None, "a flow without this step is refused before the run"
        session = await self._lab.session(variant, trace, index=None, memory=memory)
        number = 0
        for told in sessions:
            session.forget_history()
            session.now = told.moment
            for turn in told.turns:
                if self._over_budget():
                    raise BudgetSpent
                session.begin_turn(number)
                number += 1
                # The name of the step says which turn of the data set it was.
                with session.step("told", turn.id):
                    if turn.speaker.lower() in _AGENTS:
                        session.save_message("agent", turn.text)
                        continue
                    text = f"{turn.speaker}: {turn.text}"
                    asked = UserTurn(
                        text=text, speaker_id=turn.speaker, speaker_name=turn.speaker, session=told.session_id
                    )
                    try:
                        await variant.write_memory(asked, session)
                    except Exception as failure:
                        log.warning("%s/%s turn %d failed", trace.flow, trace.conversation, number, exc_info=True)
                        session.notify("ingest_failed", f"{type(failure).__name__}: {failure}")
                await session.join()


def ingest_name(dataset: Dataset, question: Question) -> str:
    """The conversation in whose name a flow fills its memory."""
    return f"{INGEST}{dataset.name}/{question.memory_of}"
