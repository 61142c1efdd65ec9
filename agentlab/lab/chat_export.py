"""Writes a live conversation down: turn by turn in a chat's folder, or whole, as a data set that replays."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from agentlab.core.errors import ConfigError
from agentlab.core.files import append_atomically, write_atomically
from agentlab.core.jsonl import read_rows
from agentlab.core.messages import Message, from_json, to_json
from agentlab.core.scratch import temp_folder_for
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.documents import Document
from agentlab.session.history import History
from agentlab.wire.recordings import Recordings
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
CONVERSATION = "chat"
"""What live conversations are called in traces and stored histories; their randomness depends on it."""
INTERRUPTED_KEY = "broken_off"
"""In the metadata of a turn that came to no end; what it did to a flow's own history is not saved."""
HISTORY_FOLDER, RECORDED = "conversations", "recordings"
"""Folders of a chat beside its memory."""
_NO_MEMORY = shutil.ignore_patterns(HISTORY_FOLDER, RECORDED, "chat.log", ".*")


_Stored = Annotated[Message, PlainValidator(partial(from_json, Message)), PlainSerializer(to_json)]


class ToldTurn(BaseModel):
    """A turn of a chat as a row of a data set, and the messages that the flow stored in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turn: Turn
    stored: list[_Stored] = Field(default_factory=list)
    reply: str | None = None


class Told:
    """The turns of a chat since its conversation began, in earlier chats too: a row each in a file, if there is one."""

    def __init__(self, database: Path | None, memory: Path, begins_with: Sequence[Turn]) -> None:
        """Raises DatasetError, with file and line, and ConfigError for files that cannot be used."""
        self.memory = memory
        """The folder of what is remembered."""
        self._file = None if database is None else database.with_suffix(".jsonl")
        self.began = temp_folder_for(self) / "memory" if database is None else database.with_suffix(".began")
        """What was in memory when the conversation began."""
        self.calls = None if database is None else database.with_suffix(".calls.jsonl")
        """The calls of the conversation, where they are recorded: apart from those of others, which may be equal."""
        self.rows: list[ToldTurn] = []
        if self._file is not None and self._file.exists() and not begins_with:
            self.rows = [row for _, row in read_rows(self._file, ToldTurn)]
        self.is_new = not self.rows
        self.rows += [_told_without_the_flow(turn) for turn in begins_with]

    @property
    def messages(self) -> list[Message]:
        """All that is stored, oldest first."""
        return [message for row in self.rows for message in row.stored]

    def begin(self) -> None:
        """What is told so far takes the place of what the file held, and what is remembered that of `began`."""
        self._write(write_atomically, self.rows)
        try:
            if self.calls is not None:
                self.calls.unlink(missing_ok=True)
            shutil.rmtree(self.began, ignore_errors=True)
            names = [file.name for file in self.memory.iterdir()] if self.memory.is_dir() else []
            if set(names) - _NO_MEMORY(str(self.memory), names):
                shutil.copytree(self.memory, self.began, ignore=_NO_MEMORY, symlinks=True)
        except OSError as problem:
            log.warning("what is saved will begin with an empty memory: %s", problem.strerror or problem)

    def add(self, turn: Turn, stored: Sequence[Message], reply: str | None) -> None:
        """Note a turn, which came to no end where there is no `reply`: that is kept as far as later ones could read it.

        Raises ConfigError where it cannot be kept.
        """
        if reply is None:
            texts = {message.role: message.text for message in stored}
            replies = [texts["agent"]] if "agent" in texts else []
            read = {"user": texts.get("user", turn.user), "reference_answers": replies}
            turn = turn.model_copy(
                update={"scored": False, **read, "metadata": {**turn.metadata, INTERRUPTED_KEY: True}}
            )
        if reply is not None or stored:
            self.rows.append(_told(turn, stored, reply))
            self._write(append_atomically, self.rows[-1:])

    def recordings(self) -> Recordings | None:
        """The calls of this conversation alone, to be added to; None where only the lab records."""
        if self.calls is None:
            return None
        return Recordings.open(self.calls.parent, self.calls.stem, write=True)

    def forget(self) -> None:
        self.rows.clear()
        self._write(write_atomically, [])

    def _write(self, write: Callable[[Path, bytes], None], rows: Sequence[ToldTurn]) -> None:
        if self._file is None:
            return
        try:
            write(self._file, _lines(rows))
        except OSError as problem:
            raise ConfigError(f"{self._file}: cannot be kept here ({problem.strerror or problem})") from None


def _lines(rows: Iterable[BaseModel]) -> bytes:
    return "".join(f"{row.model_dump_json(exclude_defaults=True)}\n" for row in rows).encode()


def _told(turn: Turn, stored: Sequence[Message], reply: str | None) -> ToldTurn:
    said = [message.text for message in stored if message.role == "agent"]
    return ToldTurn(turn=turn, stored=list(stored), reply=said[-1] if said else reply)


def _told_without_the_flow(turn: Turn) -> ToldTurn:
    history = History()
    history.save("user", turn.user)
    for reply in turn.reference_answers[:1]:
        history.save("agent", reply)
    return _told(turn, history.messages, None)


def save_chat(
    bench: Workbench,
    variant: Variant,
    told: Told,
    documents: Sequence[Document],
    mcp: Path | None,
    folder: Path,
) -> str:
    """See `Chat.save`. A turn that was broken off is kept, but not asked again."""
    said = [row.turn for row in told.rows]
    if not any(turn.scored for turn in said):
        raise ConfigError("nothing was answered in this conversation yet, so there is nothing to save")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already; name another folder")
    name = re.sub(r"[^\w.-]", "_", folder.name).lstrip(".-") or "chat"
    spec = {
        **bench.spec.model_dump(mode="json", exclude_unset=True),
        "name": name,
        "datasets": [str(folder)],
        "flows": [
            flow.model_dump(mode="json", exclude_unset=True) | {"model": variant.model}
            for flow in bench.spec.flows
            if flow.name == variant.label
        ],
        "recordings": str(folder / "recordings"),
        "mode": "replay" if bench.spec.mode != "live" else "live",
    }
    if mcp is not None:
        spec["mcp"] = str(mcp)
    recorded = {name: Path(bench.spec.recordings) / f"{bench.spec.name}.jsonl"} if bench.spec.mode != "live" else {}
    if recorded and told.calls is not None and told.calls.exists():
        # Passages and calls of older versions stand in the lab's own file.
        recorded = {name: told.calls, f"{name}-lab": recorded[name]}
        spec["also_recorded"] = [f"{name}-lab"]
    memory = "memory" if told.began.is_dir() else None
    conversation = Conversation(id=CONVERSATION, turns=said, source="a live conversation", memory=memory)
    try:
        (folder / "recordings").mkdir(parents=True)
        if memory is not None:
            shutil.copytree(told.began, folder / memory, symlinks=True)
        (folder / "conversations.jsonl").write_bytes(_lines([conversation]))
        if documents:
            (folder / "corpus.jsonl").write_bytes(_lines(documents))
        (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
        for saved, file in recorded.items():
            if file.exists():
                shutil.copyfile(file, folder / "recordings" / f"{saved}.jsonl")
    except OSError as problem:
        raise ConfigError(f"{folder}: cannot be written ({problem.strerror or problem})") from None
    return f"agentlab run {folder / 'spec.yaml'}"
