"""Coordinator's state between chats, a file in the session's folder: its history and unconsolidated episodes.

The stored conversation contains only the messages. The tool calls, their results and the context before each prompt are
only in this file. A file of another conversation, or one that cannot be read, restores no history.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from agentlab.core.files import read_bytes, write_atomically
from agentlab.core.messages import Message, from_json, to_json
from agentlab.core.strict_json import parse_json
from agentlab.flows.coordinator.llm_coordinator import LLMCoordinator

log = logging.getLogger(__name__)
FILE = "coordinator.json"


class CoordinatorState(Struct):
    stored: str
    """Digest of the stored conversation to which the history belongs."""
    messages: list[Message]
    loose: list[str]
    """Episodes from which no facts have been extracted yet."""


def save(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> None:
    """Write the state; `stored` is the conversation to which the history belongs."""
    state = CoordinatorState(_digest(stored), [*coordinator.history.request_messages()], coordinator.episodes.pending)
    try:
        write_atomically(folder / FILE, json.dumps(to_json(state), ensure_ascii=False))
    except OSError as problem:
        log.warning("%s cannot be written: %s", folder / FILE, problem.strerror or problem)


def restore(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> bool:
    """Restore the saved state; return False if the file cannot be read or its history is of another conversation."""
    try:
        state = from_json(CoordinatorState, parse_json(read_bytes(folder / FILE, follow_links=False)))
    except (OSError, ValueError):
        return False
    coordinator.episodes.pending = state.loose
    if not stored or state.stored != _digest(stored):
        return False
    coordinator.history.restore(state.messages)
    return True


def _digest(stored: Sequence[Message]) -> str:
    texts = [[message.role, message.text] for message in stored]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
