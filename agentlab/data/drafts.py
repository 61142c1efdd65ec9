"""A data set that is being written: its conversations can be added, changed, duplicated, tagged, and saved.

    draft = Draft.open("datasets/mine")
    draft.add([Turn(user="How many books may I borrow?", reference_answers=["Eight."])])
    draft.tag("case-001", "loans")
    print(*draft.doubts(), sep="\n")
    draft.save()

Lines of `conversations.jsonl` that were not touched stay as they are, to the byte.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentlab.core.errors import DatasetError
from agentlab.core.files import replace_file
from agentlab.core.jsonl import explain, read_rows
from agentlab.core.plugins import unknown
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset, check_documents
from agentlab.data.documents import Document, load_documents
from agentlab.data.lint import lint

CONVERSATIONS, CORPUS = "conversations.jsonl", "corpus.jsonl"


class Draft:
    """The conversations of the folder by id, in their order; nothing reaches the disk before `save`."""

    def __init__(self, folder: Path, documents: Sequence[Document] = ()) -> None:
        self.folder = folder
        self.documents = tuple(documents)
        """Those of its `corpus.jsonl`; of a new data set those it is to get."""
        self.conversations: dict[str, Conversation] = {}
        self._lines: dict[str, str] = {}

    @classmethod
    def open(cls, folder: str | Path, documents: Iterable[Document] = ()) -> Draft:
        """The data set that is there, or a new one with `documents`; raises DatasetError, with file and line."""
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise DatasetError("this is a file; a data set is a folder", folder)
        if any((folder / name).exists() for name in ("sessions.jsonl", "questions.jsonl")):
            raise DatasetError("this is a memory set, whose two files are written by hand", folder)
        file, corpus = folder / CONVERSATIONS, folder / CORPUS
        if not file.exists():
            return cls(folder, load_documents(corpus) if corpus.exists() else tuple(documents))
        draft = cls(folder, load_documents(corpus) if corpus.exists() else ())
        rows = list(read_rows(file, Conversation, "id"))
        lines = file.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
        for number, conversation in rows:
            draft.conversations[conversation.id] = conversation
            draft._lines[conversation.id] = lines[number - 1].decode().rstrip("\r")
        return draft

    def __getitem__(self, name: str) -> Conversation:
        if name not in self.conversations:
            raise DatasetError(unknown("conversation", name, self.conversations), self.folder)
        return self.conversations[name]

    def add(self, turns: Sequence[Turn], **others: Any) -> Conversation:
        """A new conversation of these turns, under an id that is free; others are keys of a conversation."""
        return self.put({"id": self._free("case-001"), "turns": list(turns), **others})

    def put(self, given: Conversation | dict[str, Any], replaces: str | None = None) -> Conversation:
        """Add a conversation, or put it in the place of the one called `replaces`.

        Raises DatasetError for what a data set cannot hold: an unknown key, a wrong type, an id or a document that
        is not there, an id that another one has.
        """
        try:
            content = given.model_dump() if isinstance(given, Conversation) else given
            conversation = Conversation.model_validate(content)
        except ValidationError as problem:
            raise DatasetError(explain(problem, Conversation), self.folder / CONVERSATIONS) from None
        if conversation.id != replaces and conversation.id in self.conversations:
            raise DatasetError(f"id: {conversation.id!r} is there already", self.folder / CONVERSATIONS)
        check_documents(conversation, {document.doc_id for document in self.documents}, self.folder / CONVERSATIONS)
        if replaces is None:
            self.conversations[conversation.id] = conversation
        elif self[replaces] != conversation:
            self._lines.pop(replaces, None)
            self.conversations = {
                conversation.id if name == replaces else name: conversation if name == replaces else other
                for name, other in self.conversations.items()
            }
        return conversation

    def duplicate(self, name: str) -> Conversation:
        return self.put(self[name].model_copy(update={"id": self._free(f"{name}-2")}))

    def tag(self, name: str, *tags: str) -> Conversation:
        """Set the tags of a conversation, which stand in its `metadata`; without any, take them away."""
        metadata = {key: value for key, value in self[name].metadata.items() if key != "tags"}
        metadata |= {"tags": list(dict.fromkeys(tags))} if tags else {}
        return self.put(self[name].model_copy(update={"metadata": metadata}), replaces=name)

    def remove(self, name: str) -> None:
        del self.conversations[self[name].id]
        self._lines.pop(name, None)

    @property
    def dataset(self) -> Dataset:
        places = {name: f"{CONVERSATIONS}:{number}" for number, name in enumerate(self.conversations, 1)}
        return Dataset(self.folder.resolve().name, self.conversations.values(), self.documents, places=places)

    def doubts(self) -> list[str]:
        """What `agentlab lint` would find, a line each."""
        return list(lint(self.dataset))

    def save(self) -> Path:
        """Write the file in one step; raises DatasetError where that cannot be done, and then nothing has changed."""
        file = self.folder / CONVERSATIONS
        if not self.conversations:
            raise DatasetError("a data set needs a conversation", file)
        lines = [self._lines.get(name) or _line(conversation) for name, conversation in self.conversations.items()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.documents and not (self.folder / CORPUS).exists():
                replace_file(self.folder / CORPUS, "".join(f"{_line(document)}\n" for document in self.documents))
            replace_file(file, "".join(f"{line}\n" for line in lines))
        except OSError as problem:
            raise DatasetError(f"cannot be written ({problem.strerror or problem})", file) from None
        return file

    def _free(self, wanted: str) -> str:
        stem, _, number = wanted.rpartition("-")
        taken, width = int(number), len(number)
        while f"{stem}-{taken:0{width}}" in self.conversations:
            taken += 1
        return f"{stem}-{taken:0{width}}"


def _line(row: Any) -> str:
    return str(row.model_dump_json(exclude_defaults=True))
