"""Lines about a chat's memory without a model call: receipts of a turn, and commands that users type.

for line in chat.receipts_sync():
    print(line)              # kept: My name is Ada. | not kept: it only asks, or is courtesy
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentlab.core.constants import BACKGROUND_FAILED, MEMORY_UNAVAILABLE
from agentlab.core.errors import ConfigError
from agentlab.core.escaping import one_line
from agentlab.core.events import Decision, Event, MemoryOp, Notice, ToolRun
from agentlab.core.messages import ToolCall
from agentlab.tools.memory import NEAR_FACT


def receipts(events: Iterable[Event], edits_files: bool) -> list[str]:
    """Return the lines of the writes to memory and files among `events`, in their order.

    A write that succeeds removes the lines of the failed attempts before it in its turn.
    """
    lines = [(event, one_line(line)) for event in events if (line := _receipt(event, edits_files))]
    writes = {event.turn: event.id for event, line in lines if line.startswith("kept")}
    return list(dict.fromkeys(x for e, x in lines if not x.startswith("not kept") or e.id > writes.get(e.turn, -1)))


def _receipt(event: Event, edits_files: bool) -> str:
    match event:
        case MemoryOp(op="remember" | "revise", written=True):
            return f"kept: {event.text}"
        case MemoryOp(op="remember", facts=(stored,)):
            return f"not kept, since it is near a stored fact: {stored.text}"
        case Decision(name="keep message", choice=True):
            return f"kept: {event.why}"
        case Decision(name="keep turn" | "keep message", choice=False):
            return f"not kept: {event.why}"
        case Decision(name="memory operation", choice="none"):
            return "not kept: the model chose to store nothing"
        case Decision(name="memory operation", choice="failed" | "invalid") | Decision(name="memory attempt failed"):
            return "" if NEAR_FACT in event.why else f"not kept: {event.why}"
        case Notice(name=notice) if notice in (MEMORY_UNAVAILABLE, BACKGROUND_FAILED):
            return f"not kept: {event.text.rpartition('MemoryUnavailable: ')[2]}"
        case ToolRun(call=ToolCall(name="write_file"), error=None) if not edits_files:
            path = event.call.arguments.get("file_path")
            return f"{path} ends with this chat; name a folder for files that stay: --files FOLDER"
    return ""


def list_facts(chat: Any, word: str, speaker: str = "") -> list[str]:
    """Return a line for each stored fact that contains `word`; "" lists all. Raises MemoryUnavailable."""
    lines = [
        f"{number:3}  {fact.id}  {fact.created:%Y-%m-%d %H:%M}{fact.about and f'  told by {fact.about}'}  {fact.text}"
        for number, fact in enumerate(chat.facts_sync(), 1)
        if word.lower() in fact.text.lower()
    ]
    if chat.variant.memory is None and chat.variant.attribute("facts") is None:
        return [f"{chat.variant.label} has no memory"]
    return lines or [f"no stored facts{word and f' contain {word!r}'}"]


def remember(chat: Any, text: str, speaker: str = "") -> list[str]:
    """Store a fact that `speaker` told, without the model.

    Raises ConfigError for an empty text, and what `Chat.remember_sync` raises.
    """
    if not text:
        raise ConfigError("name the fact to store: /remember My name is Ada.")
    return [f"kept: {chat.remember_sync(text, about=speaker).text}; a saved chat replays without it"]


def forget(chat: Any, number: str, speaker: str = "") -> list[str]:
    """Delete a fact by its number in the list of all facts, which counts from 1; raises ConfigError for another."""
    facts = chat.facts_sync()
    if not number.isdecimal() or not 1 <= int(number) <= len(facts):
        raise ConfigError(f"name one of {len(facts)} facts by its number in /memory: /forget 1")
    fact = facts[int(number) - 1]
    chat.forget_sync(fact.id)
    return [f"deleted: {fact.text}"]


MEMORY_COMMANDS = {"/memory": list_facts, "/remember": remember, "/forget": forget}
"""Commands to type into a chat; each takes a `Chat`, an argument and the speaker's name, and returns lines to show."""
