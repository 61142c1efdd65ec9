"""Carrying out the calls a model writes: run what is offered, refuse what is not, and answer either way."""

from __future__ import annotations

from agentlab.core.constants import INVALID_CHOICE, TOOL_CALL_DECISION
from agentlab.core.events import ToolRun
from agentlab.core.messages import Message, ToolCall
from agentlab.session.session import Session

NOT_OFFERED = "Error: not run, this tool is not offered here."


async def run_tool(session: Session, call: ToolCall) -> tuple[str, bool]:
    """Run the tool; its result as text, and whether it failed."""
    result = (await session.call_tool(call)).text
    # By identity: an id may come again, the embedded models number the calls of each request anew.
    run = next(event for event in session.turn_events() if isinstance(event, ToolRun) and event.call is call)
    return result, run.error is not None


def refuse_call(session: Session, call: ToolCall) -> str:
    """What answers a call of a tool that is not offered, or of none where it was cut off; nothing runs."""
    why = f"{call.name!r} is not offered" if call.malformed is None else f"no JSON: {call.malformed[:200]!r}"
    session.decide(TOOL_CALL_DECISION, INVALID_CHOICE, why)
    return NOT_OFFERED


def tool_result_message(call: ToolCall, text: str) -> Message:
    """The message that answers a call which did not run, or whose result is at hand."""
    return Message(role="tool", text=text, tool_call_id=call.id, name=call.name)


def truncate(result: str, most: int) -> str:
    """A tool's result, of which no more than `most` characters fill the prompts to come."""
    return result if len(result) <= most else f"{result[:most]} ... (cut, {len(result) - most} characters more)"
