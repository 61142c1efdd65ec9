"""The two-step orchestrator's turn in the provider's own tool calling: `protocol: native`.

Memory is read by a tool here and written in a step of its own, once there is a reply. What tools returned enters the
history as the two-step protocol tells it, for the turns to come; within the turn the provider's own form is better.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentlab.core.errors import ModelError
from agentlab.core.messages import Message
from agentlab.core.names import FINAL_MEMORY
from agentlab.flows.tool_calls import answer_to, refuse_call
from agentlab.flows.two_step.asking import ToolUse, refused, run_call
from agentlab.flows.two_step.prepared_turn import WRITES, PreparedTurn, without
from agentlab.flows.two_step.profile import TwoStepSettings
from agentlab.tools.mcp.registry import tool_names

OVER_LIMIT = "Error: not run, the limit of tool calls for one message is reached. Answer with what you have."


async def reply_natively(turn: PreparedTurn, base: Sequence[Message]) -> str:
    """The model calls tools until it answers; `base` stands before the history in every request."""
    session, transcript = turn.session, turn.transcript
    settings: TwoStepSettings = session.settings
    tools = tuple(without(turn.tools, WRITES) if settings.filter_memory_tools else turn.tools)
    offered = tool_names(tools)
    calls_left = settings.max_tool_calls
    within: list[Message] = []
    uses: list[ToolUse] = []
    with session.step("native_loop"):
        while True:
            choice = "none" if tools and calls_left <= 0 else "auto"
            asked = (*base, *transcript.messages, *within, *turn.memory_context)
            reply = (await session.complete(asked, tools=tools, tool_choice=choice)).message
            if not reply.tool_calls or calls_left <= 0:
                break
            within.append(reply)
            for call in reply.tool_calls:
                if call.name not in offered:
                    # Some models call what they remember from earlier turns, or make up.
                    result = refuse_call(session, call)
                elif calls_left > 0:
                    uses.append(await run_call(session, call))
                    result = uses[-1].result
                else:
                    result = OVER_LIMIT
                within.append(answer_to(call, result))
                calls_left -= 1
    for use in uses:
        transcript.add("system", use.for_history())
    return reply.text


async def write_memory_natively(turn: PreparedTurn) -> None:
    """Let the model call the tools that write to memory, again where a call of it failed."""
    session, transcript = turn.session, turn.transcript
    tools = tuple(turn.tools_that_write())
    if not tools:
        return
    with session.step(FINAL_MEMORY):
        guidance = Message(role="system", text=session.prompt("native_memory_guidance"))
        asked = [*transcript.messages, guidance, *turn.memory_context]
        written: list[ToolUse] = []
        failed: list[ToolUse] = []
        for attempt in range(1 + session.settings.final_memory_retry):
            try:
                reply = (await session.complete(asked, tools=tools, phase="memory_write")).message
            except ModelError as failure:
                session.decide("memory operation", "failed", f"{type(failure).__name__}: {failure}")
                break
            if not reply.tool_calls:
                session.decide("memory operation", "none")
                break
            uses = [
                await run_call(session, call) if call.name in tool_names(tools) else refused(session, call)
                for call in reply.tool_calls
            ]
            written += [use for use in uses if not use.failed]
            failed = [use for use in uses if use.failed]
            if not failed:
                break
            session.decide("memory attempt failed", str(attempt + 1), failed[-1].result[:200])
            answers = [answer_to(call, use.result) for call, use in zip(reply.tool_calls, uses, strict=True)]
            asked += [reply, *answers]
        for use in (*written, *failed):
            transcript.add("system", use.for_history())
