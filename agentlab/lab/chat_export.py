"""Storage of a live conversation: turn by turn in a chat's folder, or as a data set with recordings."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from agentlab.core.errors import ConfigError, os_errors_as
from agentlab.core.events import Event
from agentlab.core.files import append_atomically, write_atomically
from agentlab.core.jsonl import json_lines, read_rows
from agentlab.core.messages import Message, from_json, to_json
from agentlab.core.scratch import temp_folder_for
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.documents import Document
from agentlab.lab.receipts import receipts
from agentlab.session.history import History
from agentlab.wire.recordings import Recordings
from agentlab.workbench.spec import FlowSpec
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
CONVERSATION = "chat"
"""Name of a live conversation in traces and stored histories; its random numbers depend on the name."""
INTERRUPTED_KEY = "broken_off"
"""Metadata key of an interrupted turn, whose effect on a flow's own history is not saved."""
HISTORY_FOLDER, RECORDED = "conversations", "recordings"
"""Folders of a chat beside its memory."""
_NO_MEMORY = shutil.ignore_patterns(HISTORY_FOLDER, RECORDED, "chat.log", ".*")


_Stored = Annotated[Message, PlainValidator(partial(from_json, Message)), PlainSerializer(to_json)]


class ChatTurn(BaseModel):
    """A turn of a chat: the row of a data set and the messages that the flow stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turn: Turn
    stored: list[_Stored] = Field(default_factory=list)
    reply: str | None = None


class ChatLog:
    """Turns of a conversation, also from earlier chats. A file, if there is one, has one row per turn."""

    def __init__(self, database: Path | None, memory: Path, begins_with: Sequence[Turn]) -> None:
        """Read the file; raise DatasetError, with file and line, and ConfigError for an unusable file."""
        self.memory = memory
        """Folder of the memory."""
        self._file = None if database is None else database.with_suffix(".jsonl")
        self.initial_memory = temp_folder_for(self) / "memory" if database is None else database.with_suffix(".began")
        """Copy of the memory folder at the start of the conversation."""
        self.calls = None if database is None else database.with_suffix(".calls.jsonl")
        """Recordings of this conversation alone, because other conversations may have equal calls."""
        self.rows: list[ChatTurn] = []
        if self._file is not None and self._file.exists() and not begins_with:
            self.rows = [row for _, row in read_rows(self._file, ChatTurn)]
        self._n_receipted = 0
        """Number of events whose receipts were given."""
        self.is_new = not self.rows
        self.rows += [_initial_turn(turn) for turn in begins_with]

    @property
    def messages(self) -> list[Message]:
        """All stored messages, oldest first."""
        return [message for row in self.rows for message in row.stored]

    def begin(self) -> None:
        """Start a conversation: write the rows to the file and copy the memory to `initial_memory`."""
        self._write(write_atomically, self.rows)
        try:
            if self.calls is not None:
                self.calls.unlink(missing_ok=True)
            shutil.rmtree(self.initial_memory, ignore_errors=True)
            names = [file.name for file in self.memory.iterdir()] if self.memory.is_dir() else []
            if set(names) - _NO_MEMORY(str(self.memory), names):
                shutil.copytree(self.memory, self.initial_memory, ignore=_NO_MEMORY, symlinks=True)
        except OSError as problem:
            log.warning("a saved chat will start with an empty memory: %s", problem.strerror or problem)

    def add(self, turn: Turn, stored: Sequence[Message], reply: str | None) -> None:
        """Add a turn; a turn without `reply` was interrupted and contains only its stored messages.

        Raises ConfigError if the file cannot be written.
        """
        if reply is None:
            texts = {message.role: message.text for message in stored}
            replies = [texts["agent"]] if "agent" in texts else []
            fields = {"user": texts.get("user", turn.user), "reference_answers": replies}
            turn = turn.model_copy(
                update={"scored": False, **fields, "metadata": {**turn.metadata, INTERRUPTED_KEY: True}}
            )
        if reply is not None or stored:
            self.rows.append(_chat_turn(turn, stored, reply))
            self._write(append_atomically, self.rows[-1:])

    def recordings(self) -> Recordings | None:
        """Open the recordings of this conversation; return None if only the lab records."""
        return None if self.calls is None else Recordings.open(self.calls.parent, self.calls.stem, write=True)

    def receipts(self, events: Sequence[Event], edits_files: bool, otherwise: str, limit: object) -> list[str]:
        """Return the receipts of the conversation's events since the last call, or `otherwise` without any.

        One more line follows once a prompt with `limit` messages begins to leave out messages.
        """
        new = events[self._n_receipted :]
        self._n_receipted = len(events)
        lines = receipts(new, edits_files) or [otherwise] * bool(new and otherwise)
        if type(limit) is int and limit and 0 < len(self.messages) - limit <= len(self.rows[-1].stored):
            lines.append(f"from now on a prompt has only the last {limit} messages; the chat keeps all of them")
        return lines

    def forget(self) -> None:
        self.rows.clear()
        self._write(write_atomically, [])

    def _write(self, write: Callable[[Path, bytes], None], rows: Sequence[ChatTurn]) -> None:
        if self._file is not None:
            with os_errors_as(ConfigError, f"{self._file}: cannot be written (", ")"):
                write(self._file, json_lines(rows).encode())


def _chat_turn(turn: Turn, stored: Sequence[Message], reply: str | None) -> ChatTurn:
    replies = [message.text for message in stored if message.role == "agent"]
    return ChatTurn(turn=turn, stored=list(stored), reply=replies[-1] if replies else reply)


def _initial_turn(turn: Turn) -> ChatTurn:
    history = History()
    history.save("user", turn.user)
    for reply in turn.reference_answers[:1]:
        history.save("agent", reply)
    return _chat_turn(turn, history.messages, None)


def save_chat(
    bench: Workbench,
    variant: Variant,
    chat_log: ChatLog,
    documents: Sequence[Document],
    mcp: Path | None,
    folder: Path,
) -> str:
    """Write the conversation as `Chat.save` describes; an interrupted turn is saved but not scored."""
    turns = [row.turn for row in chat_log.rows]
    if not any(turn.scored for turn in turns):
        raise ConfigError("this conversation has no reply to save yet; save it after the first reply")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} already exists; name another folder")
    name = re.sub(r"[^\w.-]", "_", folder.name).lstrip(".-") or "chat"
    flow = next((each for each in bench.spec.flows if each.name == variant.label), FlowSpec(flow=variant.label))
    # A replay needs no variable of the environment.
    names = variant.attribute("ENVIRONMENT", {}).values()
    own = {each: value for each in names if (value := getattr(variant.settings, each, None)) is not None}
    spec = {
        **bench.spec.model_dump(mode="json", exclude_unset=True),
        "name": name,
        "datasets": [str(folder)],
        "flows": [own | flow.model_dump(mode="json", exclude_unset=True) | {"model": variant.model}],
        "recordings": str(folder / "recordings"),
        "mode": "replay" if bench.spec.mode != "live" else "live",
        **({} if mcp is None else {"mcp": str(mcp)}),
    }
    recorded = {name: Path(bench.spec.recordings) / f"{bench.spec.name}.jsonl"} if bench.spec.mode != "live" else {}
    if recorded and chat_log.calls is not None and chat_log.calls.exists():
        # The lab's own file contains the passages' vectors and the calls of older versions.
        recorded = {name: chat_log.calls, f"{name}-lab": recorded[name]}
        spec["also_recorded"] = [f"{name}-lab"]
    memory = "memory" if chat_log.initial_memory.is_dir() else None
    conversation = Conversation(id=CONVERSATION, turns=turns, source="a live conversation", memory=memory)
    with os_errors_as(ConfigError, f"{folder}: cannot be written (", ")"):
        (folder / "recordings").mkdir(parents=True)
        if memory is not None:
            shutil.copytree(chat_log.initial_memory, folder / memory, symlinks=True)
        (folder / "conversations.jsonl").write_text(json_lines([conversation]), encoding="utf-8")
        if documents:
            (folder / "corpus.jsonl").write_text(json_lines(documents), encoding="utf-8")
        (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
        for stem, file in recorded.items():
            if file.exists():
                shutil.copyfile(file, folder / "recordings" / f"{stem}.jsonl")
    return f"agentlab run {folder / 'spec.yaml'}"
