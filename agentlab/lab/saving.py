"""Writes a live conversation down: as a data set with its documents, recorded calls and a spec, or a turn as a test."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from agentlab.core.errors import ConfigError
from agentlab.core.files import append_whole
from agentlab.core.jsonl import read_rows
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import add_conversation
from agentlab.data.documents import Document
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

CONVERSATION = "chat"
"""What live conversations are called in traces and stored histories; their randomness depends on it."""
BROKEN_OFF = "broken_off"
"""In the metadata of a turn that came to no end; what it did to a flow's own history is not saved."""
STORED, RECORDED = "conversations", "recordings"
"""Folders of a chat beside its memory."""
_NO_MEMORY = shutil.ignore_patterns(STORED, RECORDED, "chat.log", ".*")


def keep_row(file: Path, row: Turn) -> None:
    """Add a turn to those that a conversation has had so far; raises ConfigError where it cannot be kept."""
    try:
        append_whole(file, f"{row.model_dump_json(exclude_defaults=True)}\n".encode())
    except OSError as problem:
        raise ConfigError(f"{file}: the turn cannot be kept here ({problem.strerror or problem})") from None


def kept_rows(file: Path) -> list[Turn]:
    """The turns that a conversation had in earlier chats; raises DatasetError, with file and line."""
    return [row for _, row in read_rows(file, Turn)] if file.exists() else []


def save_case(said: Sequence[Turn], corrected: str, documents: Sequence[Document], folder: Path) -> str:
    """See `Chat.save_case`; the last of `said` is what is to be answered better."""
    *before, asked = said
    expected = {"scored": True, "reference_answers": [corrected] if corrected else [], "unanswerable": not corrected}
    turns = [*before, asked.model_copy(update=expected)]
    return add_conversation(folder, turns, documents, source="a live conversation").id


def keep_memory(memory: Path, began: Path) -> None:
    """Copy what is in memory as a conversation begins to the folder `began`, which is not there if nothing is."""
    shutil.rmtree(began, ignore_errors=True)
    names = [file.name for file in memory.iterdir()] if memory.is_dir() else []
    if set(names) - _NO_MEMORY(str(memory), names):
        shutil.copytree(memory, began, ignore=_NO_MEMORY, symlinks=True)


def save_chat(
    bench: Workbench,
    variant: Variant,
    said: Sequence[Turn],
    documents: Sequence[Document],
    began: Path,
    mcp: Path | None,
    folder: Path,
) -> str:
    """See `Chat.save`. A turn that was broken off is kept, but not asked again; `began` is of `keep_memory`."""
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
    memory = "memory" if began.is_dir() else None
    conversation = Conversation(id=CONVERSATION, turns=list(said), source="a live conversation", memory=memory)
    try:
        (folder / "recordings").mkdir(parents=True)
        if memory is not None:
            shutil.copytree(began, folder / memory, symlinks=True)
        line = conversation.model_dump_json(exclude_defaults=True)
        (folder / "conversations.jsonl").write_text(f"{line}\n", encoding="utf-8")
        if documents:
            rows = (document.model_dump_json(exclude_defaults=True) for document in documents)
            (folder / "corpus.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        (folder / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
        recorded = Path(bench.spec.recordings) / f"{bench.spec.name}.jsonl"
        if bench.spec.mode != "live" and recorded.exists():
            shutil.copyfile(recorded, folder / "recordings" / f"{name}.jsonl")
    except OSError as problem:
        raise ConfigError(f"{folder}: cannot be written ({problem.strerror or problem})") from None
    return f"agentlab run {folder / 'spec.yaml'}"
