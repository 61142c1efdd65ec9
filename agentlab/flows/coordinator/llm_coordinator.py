"""One turn of a conversation that calls tools, whatever the provider: the loop behind the flow `coordinator`.

     1  take the user's prompt               8  translate    \
     2  the date and time                    9  call          } session.complete: the provider's own methods
     3  the memory context                  10  parse        /
     4  [CONTEXT: ...] before the prompt    11  pieces of text to `on_chunk`
     5  the history                         12  run every tool of the reply, results into the history, once more from 8
     6  the prompt into the history         13  the reply into the history, with its calls
     7  trim, only above the limit          14  hand the turn to memory

A message of the agent enters the history before the results of its calls, since that is the order providers check.
However a turn ends, by an interrupt in mid-stream too, the history is one that the next turn can use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from agentlab.core.errors import ContextOverflow
from agentlab.core.events import ModelCall
from agentlab.core.messages import Completion, Message, ToolCall, ToolSpec
from agentlab.flows.coordinator.chat_history import ChatHistory
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.tool_calls import answer_to, refuse_call
from agentlab.session.session import Session

INTERRUPTED = "Error: interrupted; if the tool had begun, it may have taken effect."
BROKEN_OFF = "Error: the turn broke off; if the tool had begun, it may have taken effect."


@dataclass(frozen=True, kw_only=True)
class LLMCoordinator:
    """Knows the history, the limits and what is to happen around a turn; the provider is behind the session."""

    history: ChatHistory
    system_instruction: str
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    build_context: Callable[[str, Session], Awaitable[str]] | None = None
    """Given the prompt: what is remembered about it, on one line."""
    store_turn: Callable[[str, str, Session], None] | None = None
    """Given the prompt and the reply, once the turn is over."""

    async def run(
        self,
        prompt: str,
        session: Session,
        tools: Sequence[ToolSpec],
        *,
        on_chunk: Callable[[str], None] = lambda text: None,
        interrupt_check: Callable[[], bool] = lambda: False,
    ) -> str:
        """The reply; "" for a turn that said nothing. `interrupt_check` is asked before each step and at each chunk.

        A cancelled turn keeps what was said so far and raises CancelledError; one that `interrupt_check` ended returns
        it. A ModelError leaves the prompt in the history, and no call without a result.
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
        _trim(self.history, session, self.settings.max_history_tokens, self.settings.trim_chunk_size)
        system = Message(role="system", text=instruction)
        turn = _ToolLoop(self.history, self.settings, session, tools, system, on_chunk, interrupt_check)
        try:
            reply = await turn.play()
        except asyncio.CancelledError:
            self.history.answer_open_calls(INTERRUPTED)
            raise
        finally:
            self.history.answer_open_calls(BROKEN_OFF)
        if self.store_turn is not None:
            self.store_turn(prompt, reply, session)
        return reply

    async def _context(self, prompt: str, session: Session) -> str:
        now = f"{session.now:%Y-%m-%d %H:%M}"
        memories = ""
        if self.build_context is not None:
            with session.step("build_context"):
                memories = await self.build_context(prompt, session)
        return f"CONTEXT: {now}, {memories}" if memories else f"CONTEXT: {now}"


@dataclass
class _ToolLoop:
    """The loop of one turn."""

    history: ChatHistory
    settings: CoordinatorSettings
    session: Session
    tools: Sequence[ToolSpec]
    system: Message
    on_chunk: Callable[[str], None]
    interrupt_check: Callable[[], bool]
    interrupted: bool = False

    async def play(self) -> str:
        reply = ""
        for _ in range(self.settings.max_tool_turns):
            if self._asked_to_stop():
                return reply
            message = (await self._complete()).message
            reply = message.text or reply
            if message.text or message.tool_calls:
                calls = _distinct(message.tool_calls, self.session)
                self.history.add_message(self.history.agent, message.text, tool_calls=calls, extra=message.extra)
            if not message.tool_calls or self.interrupted:
                self.history.answer_open_calls(INTERRUPTED)
                return reply
            await self._run_tools(self.history.open_calls())
        self.session.decide("turn limit reached", True, f"{self.settings.max_tool_turns} calls of the model")
        return reply

    async def _complete(self) -> Completion:
        """Steps 8 to 11. What was said before an interrupt is in the trace, and from there gets into the history."""
        task = asyncio.current_task()

        def on_text(text: str) -> None:
            self.on_chunk(text)
            if not self.interrupted and task is not None and self._asked_to_stop():
                task.cancel()

        completion: Completion | None = None
        try:
            completion = await self._complete_in_bounds(on_text)
            if self.interrupted:
                # An answer that came in one piece was here before the interrupt could reach it.
                await asyncio.sleep(0)
            return completion
        except asyncio.CancelledError:
            partial = completion or _broken_reply(self.session)
            if self.interrupted and task is not None and task.uncancel() == 0:
                return partial
            if partial.message.text:
                self.history.add_message(self.history.agent, partial.message.text)
            raise

    async def _complete_in_bounds(self, on_text: Callable[[str], None]) -> Completion:
        try:
            return await self._complete_once(on_text)
        except ContextOverflow:
            # Our estimate is rough, and a limit may be set too high: without this every further turn would fail.
            half = self.history.get_token_count() // 2
            if not _trim(self.history, self.session, half, 0, "the provider's limit; "):
                raise
            return await self._complete_once(on_text)

    async def _complete_once(self, on_text: Callable[[str], None]) -> Completion:
        return await self.session.complete(
            (self.system, *self.history.get_history()), tools=self.tools, on_text=on_text
        )

    async def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        """Step 12: the results enter the history in the order of the calls."""
        with self.session.step("run_tools"):
            if self.settings.parallel_tools:
                await self._run_side_by_side(calls)
                return
            for call in calls:
                if self._asked_to_stop():
                    return
                self._keep(await self._call(call))

    async def _call(self, call: ToolCall) -> Message:
        if call.name in self.session.tools and call.name not in {tool.name for tool in self.tools}:
            # Some models call what they remember from earlier turns, or make up.
            return answer_to(call, refuse_call(self.session, call))
        return await self.session.call_tool(call)

    async def _run_side_by_side(self, calls: Sequence[ToolCall]) -> None:
        done: dict[str, Message] = {}

        async def run(call: ToolCall) -> None:
            done[call.id] = await self._call(call)

        try:
            await self.session.parallel(*map(run, calls))
        finally:
            # What an interrupt finds finished is kept.
            for call in calls:
                if call.id in done:
                    self._keep(done[call.id])

    def _keep(self, result: Message) -> None:
        self.history.add_message("tool", result.text, name=result.name, tool_call_id=result.tool_call_id)

    def _asked_to_stop(self) -> bool:
        self.interrupted = self.interrupted or self.interrupt_check()
        return self.interrupted


def _trim(history: ChatHistory, session: Session, max_tokens: int, chunk_size: int, why: str = "") -> bool:
    """Trim the history, and say so in the trace; False where nothing had to go, or could."""
    before = history.get_token_count()
    gone = history.trim_to_limit(max_tokens, chunk_size)
    if gone:
        now = history.get_token_count()
        session.decide("trim history", f"{gone} messages", f"{why}about {before} tokens before, {now} now")
    return gone > 0


def _broken_reply(session: Session) -> Completion:
    """What the model had said when its call was broken off; nothing, where it was not under way."""
    # A read of memory beside the call may have begun after it.
    calls = [event for event in session.events_of_turn() if isinstance(event, ModelCall)]
    if calls and calls[-1].completion is not None and calls[-1].error == "interrupted":
        return calls[-1].completion
    return Completion(message=Message(role="agent"), finish_reason="interrupted")


def _distinct(calls: Sequence[ToolCall], session: Session) -> tuple[ToolCall, ...]:
    """The calls with an id each: some servers give none, or the same to two, and results could not be told apart."""
    if len({call.id for call in calls}) == len(calls) and all(call.id for call in calls):
        return tuple(calls)
    return tuple(replace(call, id=session.new_id("call")) for call in calls)
