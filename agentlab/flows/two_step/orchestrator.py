"""The workflow that `chatbox` and `discord` share; they differ only in the hooks of `Profile`.

    1  base system messages                     personality and whatever the profile adds
    2  automatic memory read                    the raw user message, three facts, kept for the end of the prompt
    3  user message into the history            as the profile prepares it
    4  main loop                                choose a tool without the memory tools, write its arguments, run it
    5  final memory step                        save, update or nothing, with retries that are told what went wrong
    6  final response                           base messages, history, the facts last

`protocol: native` has steps 4 to 6 in the provider's own tool calling: the reply that calls nothing is the response, so
that memory is written after it.
"""

from __future__ import annotations

from agentlab.core.messages import Message, Reply, UserTurn
from agentlab.core.names import FINAL_MEMORY, MEMORY_TOOLS
from agentlab.flows.two_step.asking import get_next_action, use_tool
from agentlab.flows.two_step.native import reply_natively, write_memory_natively
from agentlab.flows.two_step.prepared_turn import PreparedTurn, prepare_turn, without
from agentlab.flows.two_step.profile import Profile, TwoStepSettings
from agentlab.session.session import Session


async def process_message(profile: Profile, turn: UserTurn, session: Session) -> Reply:
    settings: TwoStepSettings = session.settings
    base = [Message(role="system", text=text) for text in profile.base_messages(session, turn)]
    prepared = await prepare_turn(profile, turn, session)
    if settings.protocol == "native":
        text = await reply_natively(prepared, base)
        await _final_memory(profile, prepared)
    else:
        with session.step("main_loop"):
            await _main_loop(prepared)
        await _final_memory(profile, prepared)
        with session.step("final_response"):
            asked = (*base, *prepared.transcript.messages, *prepared.memory_context)
            text = (await session.complete(asked, phase="answer")).message.text
    prepared.transcript.add("agent", text)
    return Reply(text=text)


async def process_memory(profile: Profile, turn: UserTurn, session: Session) -> None:
    """Steps 2, 3 and 5 alone: what was said long ago and needs no reply."""
    await _final_memory(profile, await prepare_turn(profile, turn, session))


async def _main_loop(turn: PreparedTurn) -> None:
    session, transcript = turn.session, turn.transcript
    settings: TwoStepSettings = session.settings
    tools = without(turn.tools, MEMORY_TOOLS) if settings.filter_memory_tools else turn.tools
    if not tools:
        session.decide("main loop", False, "there is no tool to choose")
        return
    for _ in range(settings.max_tool_calls):
        action = await get_next_action(session, transcript.messages, tools, "select_tool")
        if action.tool is None:
            session.decide("next action", action.without, action.problem)
            return
        session.decide("next action", action.tool.name)
        use = await use_tool(session, transcript.messages, action.tool, "tool_args")
        if use.names_unknown_fact:
            known = Message(role="system", text=session.prompt("known_facts", facts=turn.listed_facts() or "(none)"))
            use = await use_tool(session, transcript.messages, action.tool, "tool_args", known)
        transcript.add("system", use.for_history())
        if use.failed:
            session.decide("tool failed", use.tool, use.result[:200])
            return
    session.decide("tool limit reached", True, f"{settings.max_tool_calls} calls")


async def _final_memory(profile: Profile, turn: PreparedTurn) -> None:
    settings: TwoStepSettings = turn.session.settings
    if not (settings.final_memory and profile.final_memory_step):
        return
    if settings.protocol == "native":
        await write_memory_natively(turn)
    else:
        with turn.session.step(FINAL_MEMORY):
            await _write_memory(turn)


async def _write_memory(turn: PreparedTurn) -> None:
    session, transcript = turn.session, turn.transcript
    tools = turn.tools_that_write()
    if not tools:
        session.decide("final memory step", False, "there is no memory tool to choose")
        return
    guidance = Message(role="system", text=session.prompt("memory_guidance"))
    messages = [*transcript.messages, guidance, *turn.memory_context]
    action = await get_next_action(session, messages, tools, "memory_write", "memory_choice")
    if action.tool is None:
        session.decide("memory operation", action.without, action.problem)
        return
    session.decide("memory operation", action.tool.name)
    failures: list[Message] = []
    for attempt in range(1 + session.settings.final_memory_retry):
        use = await use_tool(session, messages, action.tool, "memory_write", *failures)
        if not use.failed:
            break
        session.decide("memory attempt failed", str(attempt + 1), use.result[:200])
        failures.append(Message(role="system", text=session.prompt("failed_before", error=use.result)))
    transcript.add("system", use.for_history())
