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
from typing import Any

from agentlab.core.files import read_bytes, replace_file
from agentlab.core.messages import Message, from_json, to_json
from agentlab.core.strict_json import parse_json
from agentlab.flows.coordinator.llm_coordinator import LLMCoordinator

log = logging.getLogger(__name__)
FILE = "coordinator.json"


def keep(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> None:
    """Write it down; `stored` is the conversation that the history belongs to."""
    held = {
        "stored": _digest(stored),
        "messages": [to_json(message) for message in coordinator.history.get_history()],
        "loose": coordinator.episodes.loose,
    }
    try:
        replace_file(folder / FILE, json.dumps(held, ensure_ascii=False))
    except OSError as problem:
        log.warning("%s cannot be written: %s", folder / FILE, problem.strerror or problem)


def take_up(folder: Path, coordinator: LLMCoordinator, stored: Sequence[Message]) -> bool:
    """Go on from what was kept; whether the history was, which needs the conversation it belongs to."""
    held = _read(folder / FILE)
    loose, messages = held.get("loose"), held.get("messages")
    coordinator.episodes.loose = [str(text) for text in loose] if isinstance(loose, list) else []
    if not stored or held.get("stored") != _digest(stored) or not isinstance(messages, list):
        return False
    try:
        coordinator.history.restore([from_json(Message, message) for message in messages])
    except ValueError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    try:
        held = parse_json(read_bytes(path, links=False))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _digest(stored: Sequence[Message]) -> str:
    said = [[message.role, message.text] for message in stored]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
