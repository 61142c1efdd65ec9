"""Execution of a model's tool calls: run offered tools, refuse others, return a result message for both."""

from __future__ import annotations

from agentlab.core.constants import INVALID_CHOICE, TOOL_CALL_DECISION
from agentlab.core.events import ToolRun
from agentlab.core.messages import Message, ToolCall
from agentlab.session.session import Session

NOT_OFFERED = "Error: not run, this tool is not offered here."


async def run_tool(session: Session, call: ToolCall) -> tuple[str, bool]:
    """Run the tool; return its result as text and True if it failed."""
    result = (await session.call_tool(call)).text
    # Compare by identity: ids repeat, because the embedded models number the calls of each request from 1.
    run = next(event for event in session.turn_events() if isinstance(event, ToolRun) and event.call is call)
    return result, run.error is not None


def refuse_call(session: Session, call: ToolCall) -> str:
    """Return the result text of a call that does not run: its tool is not offered, or its arguments are cut off."""
    reason = f"{call.name!r} {'is not offered' if call.name in session.tools else 'does not exist'}"
    reason = reason if call.malformed is None else f"no JSON: {call.malformed[:200]!r}"
    session.decide(TOOL_CALL_DECISION, INVALID_CHOICE, reason)
    return NOT_OFFERED


def tool_result_message(call: ToolCall, text: str) -> Message:
    """Return the result message of a call that did not run or whose result is known."""
    return Message(role="tool", text=text, tool_call_id=call.id, name=call.name)


def truncate(result: str, limit: int) -> str:
    """Return a tool's result with at most `limit` of its characters, because later prompts contain it."""
    return result if len(result) <= limit else f"{result[:limit]} ... (cut, {len(result) - limit} characters more)"
