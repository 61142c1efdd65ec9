"""Says in a line each what a memory kept of a turn, and why it did not keep the rest, without a model call.

for line in chat.receipts_sync():
    print(line)              # kept: My name is Ada. | not kept: it only asks, or is courtesy
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.events import Decision, Event, MemoryOp


def receipts(events: Iterable[Event]) -> list[str]:
    """Return the lines of the writes to memory among `events`, in their order."""
    return [line for event in events if (line := _receipt(event))]


def _receipt(event: Event) -> str:
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
    return ""
