"""What the coordinator keeps between chats in the session's folder: its history, and episodes in waiting.

The stored conversation has what was said; calls of tools, their results and the context before each prompt stand only
here. A file that belongs to another conversation, or cannot be read, gives no history.
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


class KeptState(Struct):
    stored: str
    """The digest of the conversation that the history belongs to."""
    messages: list[Message]
    loose: list[str]
    """Episodes that no fact was drawn from yet."""


def save(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> None:
    """Write it down; `stored` is the conversation that the history belongs to."""
    kept = KeptState(_digest(stored), list(coordinator.history.get_history()), coordinator.episodes.loose)
    try:
        write_atomically(folder / FILE, json.dumps(to_json(kept), ensure_ascii=False))
    except OSError as problem:
        log.warning("%s cannot be written: %s", folder / FILE, problem.strerror or problem)


def restore(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> bool:
    """Go on from what was kept; False where the history is not that of the conversation, or cannot be read."""
    try:
        kept = from_json(KeptState, parse_json(read_bytes(folder / FILE, follow_links=False)))
    except (OSError, ValueError):
        return False
    coordinator.episodes.loose = kept.loose
    if not stored or kept.stored != _digest(stored):
        return False
    coordinator.history.restore(kept.messages)
    return True


def _digest(stored: Sequence[Message]) -> str:
    said = [[message.role, message.text] for message in stored]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
