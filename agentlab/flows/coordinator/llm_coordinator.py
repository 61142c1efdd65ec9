"""Loop of the flow `coordinator`: one turn with tool calls, for any provider.

     1  read the user's prompt               6  add the prompt to the history
     2  add the date and time                7  trim the history if it is above the limit
     3  search memories                      8  call the model and stream its text
     4  write [CONTEXT: ...] before it       9  add the reply with its tool calls to the history
     5  load the history                    10  run the tools, add their results, continue with 8
                                            11  pass the turn to the memory

The agent's message enters the history before the results of its calls, because providers check this order. After any
end of a turn, even a cancellation during streaming, the history is valid for the next turn.
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
    """State of one conversation: history, limits and memory. The session calls the provider."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.system_instruction = read_file(settings.system_instruction)
        self.history = ChatHistory(settings.agent)
        self.episodes = Episodes(settings)

    async def run(self, prompt: str, session: Session, tools: Sequence[ToolSpec]) -> str:
        """Run one turn and return its reply, "" if the model wrote no text.

        A cancelled turn adds the partial reply to the history and raises CancelledError. After a ModelError the history
        contains the prompt, and every call has a result.
        """
        before = self.history.last_reply()
        try:
            context = await self._context(prompt, session)
        except BaseException:
            # The prompt belongs to the history even if the memory search fails.
            self.history.add_message("user", prompt)
            raise
        in_prompt = self.settings.context_in == "user"
        with session.step("add_to_history"):
            self.history.add_message("user", f"[{context}]\n\n{prompt}" if in_prompt else prompt)
        instruction = self.system_instruction if in_prompt else f"{self.system_instruction}\n\n[{context}]"
        self._trim(session, self.settings.max_history_tokens, self.settings.trim_chunk_size)
        try:
            reply = await self._call_model_and_tools(Message(role="system", text=instruction), session, tools)
        except asyncio.CancelledError:
            self.history.close_open_calls(INTERRUPTED)
            raise
        finally:
            self.history.close_open_calls(BROKEN_OFF)
        self.episodes.after_turn(before, prompt, reply, session)
        return reply

    async def _context(self, prompt: str, session: Session) -> str:
        context = f"CONTEXT: {session.now:%Y-%m-%d %H:%M}"
        if session.memory is None or not self.settings.memory_facts:
            return context
        with session.step("build_context"):
            memories = await self.episodes.build_context(prompt, session)
        return f"{context}, {memories}" if memories else context

    async def _call_model_and_tools(self, system: Message, session: Session, tools: Sequence[ToolSpec]) -> str:
        """Repeat steps 8 to 10 and return the reply."""
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
        session.decide(
            "turn limit reached", True, f"{self.settings.max_tool_turns} rounds of tools; the next call has none"
        )
        # Keep the tools in the request, so that the provider's prefix cache still matches.
        message = await self._complete(system, session, tools, tool_choice="none")
        if message.text:
            self.history.add_message(self.history.agent, message.text, extra=message.extra)
        return message.text or reply or NO_ANSWER

    async def _complete(
        self, system: Message, session: Session, tools: Sequence[ToolSpec], tool_choice: str = "auto"
    ) -> Message:
        """Return the model's message. After a cancellation, add the partial reply in the trace to the history."""

        async def call_model() -> Message:
            messages = (system, *self.history.request_messages())
            agent = self.history.agent
            return (await session.complete(messages, tools=tools, tool_choice=tool_choice, agent=agent)).message

        try:
            try:
                return await call_model()
            except ContextOverflow:
                # The token estimate is rough and the limit may be too high; without trimming, all later turns fail.
                if not self._trim(session, self.history.get_token_count() // 2, 0, "the provider's limit; "):
                    raise
                return await call_model()
        except asyncio.CancelledError:
            if text := _partial_reply(session):
                self.history.add_message(self.history.agent, text)
            raise

    async def _run_tools(self, session: Session, tools: Sequence[ToolSpec]) -> None:
        """Run the open calls and add their results in the order of the calls; a cancellation keeps finished results."""
        calls = self.history.open_calls()
        # Trimming never drops the newest exchange, so a result must not fill the history.
        max_chars = self.settings.max_history_tokens * CHARACTERS_PER_TOKEN // 2
        results: dict[str, Message] = {}

        async def run(call: ToolCall) -> None:
            if call.name in session.tools and call.name not in {tool.name for tool in tools}:
                # Some models call tools of earlier turns.
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
                        result = truncate(results[call.id].text, max_chars)
                        self.history.add_message("tool", result, name=call.name, tool_call_id=call.id)

    def _trim(self, session: Session, max_tokens: int, chunk_size: int, reason: str = "") -> bool:
        """Trim the history and note it in the trace; return False if no message was dropped."""
        before = self.history.get_token_count()
        n_dropped = self.history.trim_to_limit(max_tokens, chunk_size)
        if n_dropped:
            now = self.history.get_token_count()
            session.decide("trim history", f"{n_dropped} messages", f"{reason}about {before} tokens before, {now} now")
        return n_dropped > 0


def _partial_reply(session: Session) -> str:
    # Filter the events: a memory search in parallel may have started after the model call.
    calls = [event for event in session.turn_events() if isinstance(event, ModelCall)]
    partial = calls[-1].completion if calls and calls[-1].error == "interrupted" else None
    return partial.message.text if partial is not None else ""


def _with_unique_ids(calls: Sequence[ToolCall], session: Session) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids; some servers send no ids or duplicates, which would mix up the results."""
    if len({call.id for call in calls}) == len(calls) and all(call.id for call in calls):
        return tuple(calls)
    return tuple(replace(call, id=session.new_id("call")) for call in calls)
