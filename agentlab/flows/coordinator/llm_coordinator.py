"""One turn of a conversation that calls tools, whatever the provider: the loop behind the flow `coordinator`.

     1  take the user's prompt               7  trim, only above the limit
     2  the date and time                    8  translate, call, parse: the provider's own methods, its text streamed
     3  the memory context                   9  the reply into the history, with its calls
     4  [CONTEXT: ...] before the prompt    10  run every tool of the reply, results into the history, once more from 8
     5  the history                         11  hand the turn to memory
     6  the prompt into the history

A message of the agent enters the history before the results of its calls, since that is the order providers check.
However a turn ends, by a stop in mid-stream too, the history is one that the next turn can use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from agentlab.core.errors import ContextOverflow
from agentlab.core.events import ModelCall
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Message, ToolCall, ToolSpec
from agentlab.flows.coordinator.chat_history import ChatHistory
from agentlab.flows.coordinator.episodes import Episodes
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.text_files import read_file
from agentlab.flows.tool_calls import refuse_call, tool_result_message, truncate
from agentlab.session.session import Session

INTERRUPTED = "Error: interrupted; if the tool had begun, it may have taken effect."
NO_ANSWER = "I did not come to an answer within the steps that I may take."
BROKEN_OFF = "Error: the turn broke off; if the tool had begun, it may have taken effect."


class LLMCoordinator:
    """Knows the history, the limits and the memory around a turn; the provider is behind the session."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.system_instruction = read_file(settings.system_instruction)
        self.history = ChatHistory(settings.agent)
        self.episodes = Episodes(settings)

    async def run(self, prompt: str, session: Session, tools: Sequence[ToolSpec]) -> str:
        """The reply; "" for a turn that said nothing.

        A cancelled turn keeps what was said so far and raises CancelledError. A ModelError leaves the prompt in the
        history, and no call without a result.
        """
        try:
            context = await self._context(prompt, session)
        except BaseException:
            # The prompt was said, whatever came of looking for memories.
            self.history.add_message("user", prompt)
            raise
        in_prompt = self.settings.context_in == "user"
        with session.step("add_to_history"):
            self.history.add_message("user", f"[{context}]\n\n{prompt}" if in_prompt else prompt)
        instruction = self.system_instruction if in_prompt else f"{self.system_instruction}\n\n[{context}]"
        self._trim(session, self.settings.max_history_tokens, self.settings.trim_chunk_size)
        try:
            reply = await self._answer(Message(role="system", text=instruction), session, tools)
        except asyncio.CancelledError:
            self.history.close_open_calls(INTERRUPTED)
            raise
        finally:
            self.history.close_open_calls(BROKEN_OFF)
        self.episodes.after_turn(prompt, reply, session)
        return reply

    async def _context(self, prompt: str, session: Session) -> str:
        context = f"CONTEXT: {session.now:%Y-%m-%d %H:%M}"
        if session.memory is None or not self.settings.memory_facts:
            return context
        with session.step("build_context"):
            memories = await self.episodes.build_context(prompt, session)
        return f"{context}, {memories}" if memories else context

    async def _answer(self, system: Message, session: Session, tools: Sequence[ToolSpec]) -> str:
        """The loop over steps 8 to 10."""
        reply = ""
        for _ in range(self.settings.max_tool_turns):
            message = await self._complete(system, session, tools)
            reply = message.text or reply
            if message.text or message.tool_calls:
                calls = _with_unique_ids(message.tool_calls, session)
                self.history.add_message(self.history.agent, message.text, tool_calls=calls, extra=message.extra)
            if not message.tool_calls:
                return reply
            await self._run_tools(session, tools)
        session.decide("turn limit reached", True, f"{self.settings.max_tool_turns} calls of the model")
        # The tools stay listed, for the prefix that a provider has in its cache.
        message = await self._complete(system, session, tools, tool_choice="none")
        if message.text:
            self.history.add_message(self.history.agent, message.text, extra=message.extra)
        return message.text or reply or NO_ANSWER

    async def _complete(
        self, system: Message, session: Session, tools: Sequence[ToolSpec], tool_choice: str = "auto"
    ) -> Message:
        """What the model says; what it had said before a stop is in the trace, and from there gets into the history."""

        async def ask() -> Message:
            asked = (system, *self.history.get_history())
            return (await session.complete(asked, tools=tools, tool_choice=tool_choice)).message

        try:
            try:
                return await ask()
            except ContextOverflow:
                # Our estimate is rough, and a limit may be set too high: without this every further turn would fail.
                if not self._trim(session, self.history.get_token_count() // 2, 0, "the provider's limit; "):
                    raise
                return await ask()
        except asyncio.CancelledError:
            if said := _partial_reply(session):
                self.history.add_message(self.history.agent, said)
            raise

    async def _run_tools(self, session: Session, tools: Sequence[ToolSpec]) -> None:
        """The results enter the history in the order of the calls; those that a stop finds finished are kept."""
        calls = self.history.open_calls()
        # What fills the history alone could not be trimmed: the newest exchange stays.
        longest = self.settings.max_history_tokens * CHARACTERS_PER_TOKEN // 2
        results: dict[str, Message] = {}

        async def run(call: ToolCall) -> None:
            if call.name in session.tools and call.name not in {tool.name for tool in tools}:
                # Some models call what they remember from earlier turns, or make up.
                results[call.id] = tool_result_message(call, refuse_call(session, call))
            else:
                results[call.id] = await session.call_tool(call)

        with session.step("run_tools"):
            try:
                if self.settings.parallel_tools:
                    await session.parallel(*map(run, calls))
                else:
                    for call in calls:
                        await run(call)
            finally:
                for call in calls:
                    if call.id in results:
                        result = truncate(results[call.id].text, longest)
                        self.history.add_message("tool", result, name=call.name, tool_call_id=call.id)

    def _trim(self, session: Session, max_tokens: int, chunk_size: int, why: str = "") -> bool:
        """Trim the history, and say so in the trace; False where nothing had to go, or could."""
        before = self.history.get_token_count()
        gone = self.history.trim_to_limit(max_tokens, chunk_size)
        if gone:
            now = self.history.get_token_count()
            session.decide("trim history", f"{gone} messages", f"{why}about {before} tokens before, {now} now")
        return gone > 0


def _partial_reply(session: Session) -> str:
    # A read of memory beside the call may have begun after it.
    calls = [event for event in session.turn_events() if isinstance(event, ModelCall)]
    if not calls or calls[-1].completion is None or calls[-1].error != "interrupted":
        return ""
    return calls[-1].completion.message.text


def _with_unique_ids(calls: Sequence[ToolCall], session: Session) -> tuple[ToolCall, ...]:
    """The calls with an id each: some servers give none, or the same to two, and results could not be told apart."""
    if len({call.id for call in calls}) == len(calls) and all(call.id for call in calls):
        return tuple(calls)
    return tuple(replace(call, id=session.new_id("call")) for call in calls)
