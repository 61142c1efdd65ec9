"""The workflow that `chatbox` and `discord` share; they differ only in the hooks of `Profile`.

    1  base system messages                     personality and whatever the profile adds
    2  automatic memory read                    the raw user message, three facts, kept for the end of the prompt
    3  user message into the history            as the profile prepares it
    4  main loop                                choose a tool without the memory tools, write its arguments, run it
    5  final memory step                        save, update or nothing, with retries that are told what went wrong
    6  final response                           base messages, history, the facts last

`protocol: native` has steps 4 to 6 in the provider's own tool calling: the reply that calls nothing is the response, so
that memory is written after it. What tools returned enters the history as the two-step protocol tells it, for the turns
to come; within the turn the provider's own form is better.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from msgspec.structs import replace
from pydantic import AfterValidator

from agentlab.core.constants import FINAL_MEMORY, MEMORY_TOOLS, MEMORY_UNAVAILABLE, SAVE_MEMORY, UPDATE_MEMORY
from agentlab.core.errors import MemoryUnavailable, ModelError
from agentlab.core.messages import Fact, Message, Reply, ToolSpec, UserTurn
from agentlab.core.protocols import RELEVANCE_THRESHOLD
from agentlab.flows.text_files import read_file, read_texts
from agentlab.flows.tool_calls import refuse_call, tool_result_message
from agentlab.flows.two_step.tool_selection import ToolUse, get_next_action, run_call, use_tool
from agentlab.session.session import Session
from agentlab.tools.manual import tool_names
from agentlab.tools.memory import fact_entry

PROMPTS = read_texts(Path(__file__).with_name("prompts.yaml"))
OVER_LIMIT = "Error: not run, the limit of tool calls for one message is reached. Answer with what you have."
MEMORY_WRITE_TOOLS = (SAVE_MEMORY, UPDATE_MEMORY)


def _checked_folder(folder: str) -> str:
    for name in ("master", "stranger_1", "stranger_2"):
        if not (Path(folder) / f"{name}.txt").is_file():
            raise ValueError(f"{folder} has no {name}.txt; a folder of personalities holds three text files")
    return folder


@dataclass(frozen=True, kw_only=True)
class TwoStepSettings:
    protocol: Literal["two_step", "native"] = "two_step"
    """Two calls for each tool, action and arguments; or the provider's own tool calls."""
    automatic_memory: bool = True
    """Read memory with every message of the user before anything else."""
    final_memory: bool = True
    """Let the model write to memory before it answers."""
    filter_memory_tools: bool = True
    """Keep the memory tools out of the main loop."""
    memory_facts: Annotated[int, Ge(0)] = 3
    """How many facts the automatic read brings at most."""
    memory_min_score: Annotated[float, Ge(-1), Le(1)] = RELEVANCE_THRESHOLD
    """Cosine similarity to the message, or to a tool's query, from which a fact is brought."""
    final_memory_retry: Annotated[int, Ge(0)] = 2
    """Further attempts to write to memory after the first."""
    max_tool_calls: Annotated[int, Ge(0)] = 5
    """How many tools run for one message."""
    max_argument_tokens: Annotated[int, Ge(1)] = 1024
    """Limit of a reply that holds a tool's arguments, such as the content of a file."""
    history: Annotated[int, Ge(0)] = 12
    """How many earlier messages the model sees, from a message of a user on; results of tools count."""
    context_in: Literal["user", "system"] = "user"
    """The role in which facts, errors of tools and the name of who speaks are told; they are words of others, and in
    the system's role a model obeys them more readily."""
    personalities: Annotated[str, AfterValidator(_checked_folder)] = str(Path(__file__).parent / "personalities")
    """A folder with `master.txt`, `stranger_1.txt` and `stranger_2.txt`."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The hooks: what a place where people talk to the assistant adds to the shared workflow."""

    base_messages: Callable[[Session, UserTurn], list[str]]
    """System messages of the final response; the first is the personality."""
    speaker: Callable[[Session, UserTurn], list[str]] = lambda session, turn: []
    """What comes after them: who it is that speaks, under a name that they chose."""
    prepare: Callable[[UserTurn], str] = lambda turn: turn.text
    """The user's message as the history keeps it."""
    facts_prompt: Callable[[Session, UserTurn], str] = lambda session, turn: "facts"
    """Name of the prompt that tells what is remembered: it says of whom."""
    allowed_tools: tuple[str, ...] | None = None
    """Names of the tools the model may use; None: all."""
    final_memory_step: bool = True


def personality(session: Session, name: str) -> str:
    return read_file(Path(session.settings.personalities) / f"{name}.txt")


@dataclass(frozen=True)
class PreparedTurn:
    """What the steps of one turn work on."""

    session: Session
    messages: list[Message]
    """The conversation as the model sees it, results of tools included."""
    tools: Sequence[ToolSpec]
    """Those the profile allows."""
    listed_facts: str
    """Of long-term memory, those nearest to the message."""
    facts_prompt: str = "facts"

    def add(self, role: Literal["user", "agent", "system"], text: str, speaker: str | None = None) -> None:
        """Put a message into the conversation, and store it at once."""
        self.messages.append(_as_request_message(Message(role=role, text=text, name=speaker)))
        self.session.save_message(role, text, speaker=speaker)

    @property
    def memory_context(self) -> list[Message]:
        """The message that tells the facts, where there are any."""
        if not self.listed_facts:
            return []
        return [_context_message(self.session, self.session.prompt(self.facts_prompt, facts=self.listed_facts))]


async def process_message(profile: Profile, turn: UserTurn, session: Session) -> Reply:
    base = [Message(role="system", text=text) for text in profile.base_messages(session, turn)]
    base += [_context_message(session, text) for text in profile.speaker(session, turn)]
    prepared = await _prepare_turn(profile, turn, session)
    if session.settings.protocol == "native":
        text = await _reply_natively(prepared, base)
        await _final_memory(profile, prepared)
    else:
        with session.step("main_loop"):
            await _main_loop(prepared)
        await _final_memory(profile, prepared)
        with session.step("final_response"):
            asked = (*base, *prepared.messages, *prepared.memory_context)
            text = (await session.complete(asked, phase="answer")).message.text
    prepared.add("agent", text)
    return Reply(text=text)


async def process_memory(profile: Profile, turn: UserTurn, session: Session) -> None:
    """Steps 2, 3 and 5 alone: what was said long ago and needs no reply."""
    await _final_memory(profile, await _prepare_turn(profile, turn, session))


async def _prepare_turn(profile: Profile, turn: UserTurn, session: Session) -> PreparedTurn:
    """Read memory, take up the stored history and add the message to it."""
    settings: TwoStepSettings = session.settings
    facts: tuple[Fact, ...] = ()
    if settings.automatic_memory:
        with session.step("automatic_memory"):
            try:
                facts = await session.recall(turn.text, top_k=settings.memory_facts)
            except MemoryUnavailable as gone:
                session.notify(MEMORY_UNAVAILABLE, str(gone))
    earlier = session.load_conversation(settings.history) if settings.history else ()
    # A reply or a result without what it answers would only confuse.
    earlier = tuple(itertools.dropwhile(lambda message: message.role != "user", earlier))
    prepared = PreparedTurn(
        session,
        list(map(_as_request_message, earlier)),
        _allowed_tools(profile, session),
        "\n".join(map(fact_entry, facts)),
        profile.facts_prompt(session, turn),
    )
    prepared.add("user", profile.prepare(turn), speaker=turn.speaker_name)
    return prepared


def _context_message(session: Session, text: str) -> Message:
    """What is told beside the conversation, with words of others in it."""
    return Message(role=session.settings.context_in, text=text)


def _as_request_message(message: Message) -> Message:
    """A message of the history as a request holds it: what a tool brought is never an instruction to the model."""
    return replace(message, role="user") if message.role == "system" else message


def _allowed_tools(profile: Profile, session: Session) -> list[ToolSpec]:
    """Tools a conversation brings along replace the profile's list; the memory tools stay with their steps."""
    names = None if session.has.has_dataset_tools else profile.allowed_tools
    allowed = [spec for spec in session.tool_specs() if names is None or spec.name in names]
    return allowed if profile.final_memory_step else _without(allowed, MEMORY_WRITE_TOOLS)


def _without(tools: Sequence[ToolSpec], names: Sequence[str]) -> list[ToolSpec]:
    return [tool for tool in tools if tool.name not in names]


async def _main_loop(turn: PreparedTurn) -> None:
    session = turn.session
    settings: TwoStepSettings = session.settings
    tools = _without(turn.tools, MEMORY_TOOLS) if settings.filter_memory_tools else turn.tools
    if not tools:
        session.decide("main loop", False, "there is no tool to choose")
        return
    for _ in range(settings.max_tool_calls):
        tool = await get_next_action(session, turn.messages, tools, "select_tool", "next_action", "next action")
        if tool is None:
            return
        use = await use_tool(session, turn.messages, tool, "tool_args")
        if use.names_unknown_fact:
            known = _context_message(session, session.prompt("known_facts", facts=turn.listed_facts or "(none)"))
            use = await use_tool(session, turn.messages, tool, "tool_args", known)
        turn.add("system", use.for_history())
        if use.failed:
            session.decide("tool failed", use.tool, use.result[:200])
            return
    session.decide("tool limit reached", True, f"{settings.max_tool_calls} calls")


async def _final_memory(profile: Profile, turn: PreparedTurn) -> None:
    settings: TwoStepSettings = turn.session.settings
    tools = [tool for tool in turn.tools if tool.name in MEMORY_WRITE_TOOLS]
    is_native = settings.protocol == "native"
    if not (settings.final_memory and profile.final_memory_step) or (is_native and not tools):
        return
    with turn.session.step(FINAL_MEMORY):
        await (_write_memory_natively if is_native else _write_memory)(turn, tools)


async def _write_memory(turn: PreparedTurn, tools: Sequence[ToolSpec]) -> None:
    session = turn.session
    if not tools:
        session.decide("final memory step", False, "there is no memory tool to choose")
        return
    guidance = Message(role="system", text=session.prompt("memory_guidance"))
    messages = [*turn.messages, guidance, *turn.memory_context]
    tool = await get_next_action(session, messages, tools, "memory_write", "memory_choice", "memory operation")
    if tool is None:
        return
    failures: list[Message] = []
    for attempt in range(1 + session.settings.final_memory_retry):
        use = await use_tool(session, messages, tool, "memory_write", *failures)
        if not use.failed:
            break
        session.decide("memory attempt failed", str(attempt + 1), use.result[:200])
        failures.append(_context_message(session, session.prompt("failed_before", error=use.result)))
    turn.add("system", use.for_history())


async def _reply_natively(turn: PreparedTurn, base: Sequence[Message]) -> str:
    """The model calls tools until it answers; `base` stands before the history in every request."""
    session = turn.session
    settings: TwoStepSettings = session.settings
    tools = tuple(_without(turn.tools, MEMORY_WRITE_TOOLS) if settings.filter_memory_tools else turn.tools)
    offered = tool_names(tools)
    calls_left = settings.max_tool_calls
    within: list[Message] = []
    uses: list[ToolUse] = []
    with session.step("native_loop"):
        while True:
            choice = "none" if tools and calls_left <= 0 else "auto"
            asked = (*base, *turn.messages, *within, *turn.memory_context)
            reply = (await session.complete(asked, tools=tools, tool_choice=choice)).message
            if not reply.tool_calls or calls_left <= 0:
                break
            within.append(reply)
            for call in reply.tool_calls:
                if call.name not in offered:
                    # Some models call what they remember from earlier turns, or make up.
                    result = refuse_call(session, call)
                elif calls_left > 0:
                    uses.append(await run_call(session, call, offered))
                    result = uses[-1].result
                else:
                    result = OVER_LIMIT
                within.append(tool_result_message(call, result))
                calls_left -= 1
    for use in uses:
        turn.add("system", use.for_history())
    return reply.text


async def _write_memory_natively(turn: PreparedTurn, tools: Sequence[ToolSpec]) -> None:
    """Let the model call the tools that write to memory, again where a call of it failed."""
    session = turn.session
    guidance = Message(role="system", text=session.prompt("native_memory_guidance"))
    asked = [*turn.messages, guidance, *turn.memory_context]
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
        uses = [await run_call(session, call, tool_names(tools)) for call in reply.tool_calls]
        written += [use for use in uses if not use.failed]
        failed = [use for use in uses if use.failed]
        if not failed:
            break
        session.decide("memory attempt failed", str(attempt + 1), failed[-1].result[:200])
        answers = [tool_result_message(call, use.result) for call, use in zip(reply.tool_calls, uses, strict=True)]
        asked += [reply, *answers]
    for use in (*written, *failed):
        turn.add("system", use.for_history())
