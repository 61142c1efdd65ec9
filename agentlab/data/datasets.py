"""Data sets: a folder with `conversations.jsonl` and, where documents are needed, `corpus.jsonl`; or a memory set.

A memory set is a folder with `sessions.jsonl` and `questions.jsonl` (`memory_sets.py`).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any

from agentlab.core.errors import DatasetError, os_errors_as
from agentlab.core.escaping import one_line
from agentlab.core.files import append_atomically, write_atomically
from agentlab.core.jsonl import json_lines, read_rows
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.documents import Document, load_documents
from agentlab.data.memory_sets import MEMORY_SET, MemorySession, read_memory_set


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A loaded data set: conversations and documents; `digest` is the SHA-256 of its content.

    The content is the conversations in use, the documents, and the memory before the first turn.
    """

    name: str
    conversations: tuple[Conversation, ...]
    documents: tuple[Document, ...] = ()
    memory_sessions: Mapping[str, Sequence[MemorySession]] = field(default_factory=dict)
    """Sessions that a memory set stores in memory, by conversation, in order of their dates."""
    initial_memories: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the initial memory, by conversation id; other conversations start with an empty memory."""
    locations: Mapping[str, str] = field(default_factory=dict)
    """File and line of each conversation, as `conversations.jsonl:3`; {} if it was not read from a file."""
    max_turns: int = 0
    """Scored turns of the longest conversation that a subset leaves out."""

    @cached_property
    def digest(self) -> str:
        content = hashlib.sha256()
        for conversation in self.conversations:
            row = conversation.model_dump(exclude={"memory"} if conversation.memory is None else None)
            content.update(json.dumps(row).encode())
        for document in self.documents:
            content.update(json.dumps([document.doc_id, document.title, document.text]).encode())
        for name, sessions in self.memory_sessions.items():
            content.update(json.dumps([name, *(session.model_dump() for session in sessions)]).encode())
        for folder in self.initial_memories.values():
            for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                content.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
        return content.hexdigest()

    @property
    def turns(self) -> int:
        """Number of scored turns."""
        return sum(len(conversation.scored_turns) for conversation in self.conversations)

    @property
    def longest(self) -> int:
        """Number of scored turns of the longest conversation, also of one that a subset leaves out."""
        return max(self.max_turns, *(len(conversation.scored_turns) for conversation in self.conversations))

    def subset(self, limit: int | None, seed: int | None = None) -> Dataset:
        """Return the first `limit` conversations, or with `seed` a stratified sample of them, as a data set."""
        if limit is None:
            return self
        subset = self.conversations[:limit] if seed is None else _stratified(self.conversations, limit, seed)
        names = {conversation.id for conversation in subset}
        left_out = (len(each.scored_turns) for each in self.conversations if each.id not in names)
        return replace(self, conversations=tuple(subset), max_turns=max(self.max_turns, *left_out, 0))

    def __repr__(self) -> str:
        return (
            f"<Dataset {one_line(self.name)}: {len(self.conversations)} conversations, {self.turns} graded turns,"
            f" {len(self.documents)} documents>"
        )


def conversation_name(dataset: Dataset, conversation: Conversation, datasets: Sequence[object]) -> str:
    """Return the name of a conversation in a run of `datasets`: two sets may use the same id."""
    return f"{dataset.name}/{conversation.id}" if len(datasets) > 1 else conversation.id


def by_name(datasets: Sequence[Dataset], paths: Sequence[object]) -> dict[str, Conversation]:
    """Return the conversations of data sets by their names in a run of `paths`."""
    return {conversation_name(dataset, each, paths): each for dataset in datasets for each in dataset.conversations}


def _stratified(conversations: Sequence[Conversation], limit: int, seed: int) -> Sequence[Conversation]:
    """Draw from each stratum in proportion (largest remainder); strata are kinds of expectations."""
    strata: dict[str, list[Conversation]] = defaultdict(list)
    for conversation in conversations:
        strata[_stratum(conversation)].append(conversation)
    fraction = min(1.0, limit / len(conversations))
    quotas = {name: int(len(members) * fraction) for name, members in strata.items()}
    by_remainder = sorted(strata, key=lambda name: (quotas[name] - len(strata[name]) * fraction, name))
    for name in by_remainder[: min(limit, len(conversations)) - sum(quotas.values())]:
        quotas[name] += 1
    chosen: set[str] = set()
    for name in sorted(strata):
        sample = random.Random(f"{seed}/{name}").sample(strata[name], quotas[name])
        chosen.update(conversation.id for conversation in sample)
    return [conversation for conversation in conversations if conversation.id in chosen]


def _stratum(conversation: Conversation) -> str:
    turns = [turn for turn in conversation.turns if turn.scored]
    unanswerable = sum(turn.unanswerable for turn in turns)
    lookups = {turn.needs_document_lookup for turn in turns} - {None}
    kind = conversation.metadata.get("kind") or conversation.metadata.get("category") or ""
    refusals = "all" if unanswerable == len(turns) else "some" if unanswerable else "none"
    return f"{kind}/{refusals}/{sorted(map(str, lookups))}"


def file_stamps(path: str | Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of each file of a data set folder; if they are equal, the loaded set is current."""
    stats = ((str(file), file.stat()) for file in sorted(Path(path).glob("*.jsonl")))
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def load_dataset(path: str | Path) -> Dataset:
    """Read a data set folder: `conversations.jsonl` and `corpus.jsonl`, or a memory set.

    Raises DatasetError with file, line and key for an invalid row, an unknown key or an unknown document.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise DatasetError("there is no such data set folder; a data set is a folder with conversations.jsonl", folder)
    file = folder / "conversations.jsonl"
    if not file.is_file():
        if any((folder / name).exists() for name in MEMORY_SET):
            questions, sessions = read_memory_set(folder)
            return _with_locations(folder / "questions.jsonl", questions, memory_sessions=sessions)
        raise DatasetError("the data set has no conversations.jsonl", folder)
    corpus = folder / "corpus.jsonl"
    documents = load_documents(corpus) if corpus.exists() else ()
    conversations = list(read_rows(file, Conversation, "id"))
    if not conversations:
        raise DatasetError("the file contains no conversation", file)
    doc_ids = {document.doc_id for document in documents}
    for line, conversation in conversations:
        check_documents(conversation, doc_ids, file, line)
    memories = {
        conversation.id: _memory_folder(folder, conversation.memory, file, line)
        for line, conversation in conversations
        if conversation.memory is not None
    }
    return _with_locations(file, conversations, documents=documents, initial_memories=memories)


def add_conversation(
    folder: str | Path, turns: Sequence[Turn], documents: Sequence[Document] = (), **keys: Any
) -> Conversation:
    """Add a conversation to the data set `folder` and return it; a new folder is created, with `documents`.

    The conversation gets the first free id: `case-001`, `case-002` and so on. `keys` are its other keys, such as
    `metadata`. Existing lines stay the same to the byte; `documents` are ignored if the data set exists.

    Raises DatasetError for a folder that is no data set or not writable, and for a turn with an unknown document.
    """
    folder = Path(folder)
    file, corpus = folder / "conversations.jsonl", folder / "corpus.jsonl"
    if folder.is_file():
        raise DatasetError("this is a file; a data set is a folder", folder)
    if any((folder / name).exists() for name in MEMORY_SET):
        raise DatasetError("this is a memory set, whose two files are written by hand", folder)
    is_new = not file.exists()
    used = set() if is_new else {conversation.id for _, conversation in read_rows(file, Conversation, "id")}
    corpus_documents = load_documents(corpus) if corpus.exists() else tuple(documents) if is_new else ()
    name = next(name for number in count(1) if (name := f"case-{number:03}") not in used)
    conversation = Conversation(id=name, turns=list(turns), **keys)
    check_documents(conversation, {document.doc_id for document in corpus_documents}, file)
    with os_errors_as(partial(DatasetError, path=file), "cannot be written (", ")"):
        folder.mkdir(parents=True, exist_ok=True)
        if corpus_documents and not corpus.exists():
            write_atomically(corpus, json_lines(corpus_documents))
        end = b"" if is_new or file.read_bytes().endswith(b"\n") else b"\n"
        append_atomically(file, end + json_lines([conversation]).encode())
    return conversation


def _memory_folder(folder: Path, name: str, file: Path, line: int) -> Path:
    """Return the memory folder of a conversation; raises DatasetError for one outside the data set."""
    memory = folder / name
    inside = memory.is_dir() and folder.resolve() in memory.resolve().parents
    parts = (memory, *memory.rglob("*")) if inside else ()
    if not inside or any(part.is_symlink() or not (part.is_dir() or part.is_file()) for part in parts):
        raise DatasetError(
            f"memory: {name!r} is not a folder inside the data set, or contains special files or links", file, line
        )
    return memory


def check_documents(conversation: Conversation, doc_ids: Collection[str], file: Path, line: int | None = None) -> None:
    """Raise DatasetError if a turn names an unknown document."""
    for number, turn in enumerate(conversation.turns):
        missing = [doc_id for doc_id in turn.relevant_doc_ids or () if doc_id not in doc_ids]
        if missing:
            raise DatasetError(f"turns.{number}.relevant_doc_ids: {missing[0]!r} is not in corpus.jsonl", file, line)


def _with_locations(file: Path, rows: Sequence[tuple[int, Conversation]], **parts: Any) -> Dataset:
    locations = {conversation.id: f"{file}:{line}" for line, conversation in rows}
    return Dataset(file.parent.resolve().name, tuple(row for _, row in rows), locations=locations, **parts)
