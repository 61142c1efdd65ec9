"""Data sets: a folder with `conversations.jsonl` and, where documents are needed, `corpus.jsonl`. Strict and exact.

A folder with `sessions.jsonl` and `questions.jsonl` instead is a memory set (`memory_sets.py`).

A conversation, one JSON object a line:

    {"id": "laws-001", "turns": [{"user": "How long is half-time?", "reference_answers": ["At most 15 minutes."],
     "relevant_doc_ids": ["law-07-duration"]}], "source": "...", "licence": "..."}

An unknown key, a wrong type or a broken line is a DatasetError that names file, line and key.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentlab.errors import DatasetError
from agentlab.knowledge.documents import Document, load_documents
from agentlab.rows import STRICT, read_rows

if TYPE_CHECKING:
    from agentlab.evals.memory_sets import ToldSession


class Strict(BaseModel):
    model_config = STRICT


class Speaker(Strict):
    id: str
    name: str = ""


class ExpectedCall(Strict):
    name: str
    accepted_arguments: dict[str, list[Any]] = {}
    optional_arguments: list[str] = []
    arguments_visible_in_context: bool = True


class ToolResult(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    name: str


class ExpectedMemory(Strict):
    op: Literal["add", "update", "none"]
    content: str | None = None
    replaces: str | None = None


class ToolDefinition(Strict):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}


class Turn(Strict):
    user: str
    reference_answers: list[str] = []
    relevant_doc_ids: list[str] | None = None
    unanswerable: bool = False
    scored: bool = True
    needs_document_lookup: bool | None = None
    expected_calls: list[ExpectedCall] | None = None
    call_order: str = "any"
    no_call: bool = False
    tool_results: list[ToolResult] = []
    speaker: Speaker | None = None
    session: str | None = None
    expected_memory: list[ExpectedMemory] | None = None
    metadata: dict[str, Any] = {}


class Conversation(Strict):
    id: str = Field(min_length=1)
    turns: list[Turn] = Field(min_length=1)
    source: str = ""
    licence: str = ""
    tools: list[ToolDefinition] = []
    metadata: dict[str, Any] = {}

    @model_validator(mode="after")
    def _distinct_tools_and_a_date(self) -> Conversation:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tools: two tools have the same name")
        today = self.metadata.get("today")
        if today is not None and not _is_date(today):
            raise ValueError(f"metadata.today: {today!r} is not a date such as 2019-03-01")
        return self

    @property
    def scored_turns(self) -> list[int]:
        return [number for number, turn in enumerate(self.turns) if turn.scored]


def _is_date(text: Any) -> bool:
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True


class Dataset:
    """A loaded data set. `digest` is a SHA-256 over the conversations in use, the corpus and what was told before."""

    def __init__(
        self,
        name: str,
        conversations: Iterable[Conversation],
        documents: Iterable[Document] = (),
        told: Mapping[str, Sequence[ToldSession]] | None = None,
    ) -> None:
        self.name = name
        self.conversations = tuple(conversations)
        self.documents = tuple(documents)
        self.told = dict(told or {})
        """Of a memory set: the sessions that go into memory, in order of their dates, by conversation."""

    @property
    def digest(self) -> str:
        content = hashlib.sha256()
        for conversation in self.conversations:
            content.update(json.dumps(conversation.model_dump()).encode())
        for document in self.documents:
            content.update(json.dumps([document.doc_id, document.title, document.text]).encode())
        for name, sessions in self.told.items():
            content.update(json.dumps([name, *(session.model_dump() for session in sessions)]).encode())
        return content.hexdigest()

    @property
    def turns(self) -> int:
        """How many turns are scored."""
        return sum(len(conversation.scored_turns) for conversation in self.conversations)

    def take(self, limit: int | None, seed: int | None = None) -> Dataset:
        """The first `limit` conversations, or with `seed` a stratified sample of them in their own order."""
        chosen: Iterable[Conversation] = self.conversations
        if limit is not None and seed is not None:
            chosen = _stratified(self.conversations, limit, seed)
        elif limit is not None:
            chosen = self.conversations[:limit]
        return Dataset(self.name, chosen, self.documents, self.told)

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.name}: {len(self.conversations)} conversations, {self.turns} graded turns,"
            f" {len(self.documents)} documents>"
        )


def name_of(dataset: Dataset, conversation: Conversation, datasets: Sequence[Dataset]) -> str:
    """What a conversation is called in the run of `datasets`; two sets may use one id."""
    return f"{dataset.name}/{conversation.id}" if len(datasets) > 1 else conversation.id


def _stratified(conversations: tuple[Conversation, ...], limit: int, seed: int) -> list[Conversation]:
    """Draw from each stratum in proportion (largest remainder); a stratum is what a conversation's turns ask for."""
    strata: dict[str, list[Conversation]] = defaultdict(list)
    for conversation in conversations:
        strata[_stratum(conversation)].append(conversation)
    share = min(1.0, limit / len(conversations))
    quotas = {name: int(len(members) * share) for name, members in strata.items()}
    by_remainder = sorted(strata, key=lambda name: (quotas[name] - len(strata[name]) * share, name))
    for name in by_remainder[: min(limit, len(conversations)) - sum(quotas.values())]:
        quotas[name] += 1
    chosen: set[str] = set()
    for name in sorted(strata):
        drawn = random.Random(f"{seed}/{name}").sample(strata[name], quotas[name])
        chosen.update(conversation.id for conversation in drawn)
    return [conversation for conversation in conversations if conversation.id in chosen]


def _stratum(conversation: Conversation) -> str:
    turns = [turn for turn in conversation.turns if turn.scored]
    unanswerable = sum(turn.unanswerable for turn in turns)
    lookups = {turn.needs_document_lookup for turn in turns} - {None}
    kind = conversation.metadata.get("kind") or conversation.metadata.get("category") or ""
    refusals = "all" if unanswerable == len(turns) else "some" if unanswerable else "none"
    return f"{kind}/{refusals}/{sorted(map(str, lookups))}"


def load_dataset(path: str | Path) -> Dataset:
    """Read a data set folder; raises DatasetError naming file, line and key."""
    folder = Path(path)
    if not folder.is_dir():
        raise DatasetError("there is no such data set folder; a data set is a folder with conversations.jsonl", folder)
    file = folder / "conversations.jsonl"
    if not file.is_file():
        if (folder / "sessions.jsonl").exists() or (folder / "questions.jsonl").exists():
            from agentlab.evals.memory_sets import load_memory_set

            return load_memory_set(folder)
        raise DatasetError("the data set has no conversations.jsonl", folder)
    corpus = folder / "corpus.jsonl"
    documents = load_documents(corpus) if corpus.exists() else ()
    conversations = list(_read_conversations(file))
    if not conversations:
        raise DatasetError("the file holds no conversation", file)
    known = {document.doc_id for document in documents}
    for line, conversation in conversations:
        for number, turn in enumerate(conversation.turns):
            missing = [doc_id for doc_id in turn.relevant_doc_ids or () if doc_id not in known]
            if missing:
                raise DatasetError(
                    f"turns.{number}.relevant_doc_ids: {missing[0]!r} is not in corpus.jsonl", file, line
                )
    return Dataset(folder.resolve().name, (conversation for _, conversation in conversations), documents)


def _read_conversations(file: Path) -> Iterator[tuple[int, Conversation]]:
    seen: dict[str, int] = {}
    for number, conversation in read_rows(file, Conversation):
        if conversation.id in seen:
            raise DatasetError(f"id: {conversation.id!r} stands in line {seen[conversation.id]} too", file, number)
        seen[conversation.id] = number
        yield number, conversation
