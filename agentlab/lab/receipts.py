"""Says in a line each what a turn left in memory or files, and what it did not leave, without a model call.

for line in chat.receipts_sync():
    print(line)              # kept: My name is Ada. | not kept: it only asks, or is courtesy
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.events import Decision, Event, MemoryOp, ToolRun
from agentlab.core.messages import ToolCall


def receipts(events: Iterable[Event], keeps_files: bool) -> list[str]:
    """Return the lines of the writes to memory and files among `events`, in their order."""
    return [line for event in events if (line := _receipt(event, keeps_files))]


def _receipt(event: Event, keeps_files: bool) -> str:
    match event:
        case MemoryOp(op="remember" | "revise", written=True):
            return f"kept: {event.text}"
        case MemoryOp(op="remember", facts=(stored,)):
            return f"not kept, since it is near a stored fact: {stored.text}"
        case MemoryOp(op="revise"):
            return f"not kept, since there is no fact {event.replaces}: {event.text}"
        case Decision(name="keep turn", choice=False):
            return f"not kept: {event.why}"
        case Decision(name="memory operation", choice="none"):
            return "not kept: the model chose to store nothing"
        case Decision(name="memory operation", choice="failed" | "invalid") | Decision(name="memory attempt failed"):
            return f"not kept: {event.why}"
        case ToolRun(call=ToolCall(name="write_file"), error=None) if not keeps_files:
            path = event.call.arguments.get("file_path")
            return f"{path} ends with this chat; name a folder for files that stay: --files FOLDER"
    return ""
