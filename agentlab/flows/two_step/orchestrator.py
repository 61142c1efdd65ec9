"""Workflow of `chatbox` and `discord`, which differ only in the hooks of `Profile`.

    1  base system messages                     the personality and messages of the profile
    2  automatic memory read                    facts nearest to the raw user message, for the end of the prompt
    3  user message into the history            prepared by the profile
    4  main loop                                choose a tool (no memory tool), write its arguments, run it
    5  final memory step                        save, update or nothing; a retry gets the error of the last attempt
    6  final response                           base messages, history, facts

With `protocol: native`, steps 4 and 6 use the provider's own tool calls: the first reply without a call is the final
response, and step 5 follows it. Tool results use the provider's form within the turn. For later turns, the history
stores them in the form of the two-step protocol.
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

from agentlab.core.constants import FINAL_MEMORY, MEMORY_TOOLS, SAVE_MEMORY, UPDATE_MEMORY
from agentlab.core.errors import ModelError
from agentlab.core.messages import Fact, Message, Reply, ToolCall, ToolSpec, UserTurn
from agentlab.core.protocols import NEAR_THRESHOLD, RELEVANCE_THRESHOLD
from agentlab.flows.text_files import read_file, read_texts
from agentlab.flows.tool_calls import refuse_call, tool_result_message
from agentlab.flows.two_step.tool_selection import ToolUse, get_next_action, max_argument_tokens, run_call, use_tool
from agentlab.knowledge.intent import names_a_change, read_intent
from agentlab.memory.base import words_of
from agentlab.session.session import Session
from agentlab.tools.manual import find_tool, tool_names
from agentlab.tools.memory import NEAR_FACT, fact_entry

PROMPTS = read_texts(Path(__file__).with_name("prompts.yaml"))
OVER_LIMIT = "Error: not run, the limit of tool calls for one message is reached. Answer with what you have."
MEMORY_WRITE_TOOLS = (SAVE_MEMORY, UPDATE_MEMORY)
BEFORE = " (before: "
"""Text between a new version of a fact by rules and the old one, whose other words may still be true."""


def _checked_folder(folder: str) -> str:
    for name in ("master", "stranger_1", "stranger_2"):
        if not (Path(folder) / f"{name}.txt").is_file():
            raise ValueError(f"{folder} has no {name}.txt; add master.txt, stranger_1.txt and stranger_2.txt")
    return folder


@dataclass(frozen=True, kw_only=True)
class TwoStepSettings:
    protocol: Literal["two_step", "native"] = "two_step"
    """Form of tool calls: two model calls per tool (choice, arguments), or the provider's own tool calls."""
    automatic_memory: bool = True
    """Search memory for every user message before all other steps."""
    final_memory: bool = True
    """Let the model write to memory, in the two-step protocol before the final response."""
    filter_memory_tools: bool = True
    """Exclude the memory tools from the main loop."""
    memory_facts: Annotated[int, Ge(0)] = 3
    """Maximum number of facts of the automatic search."""
    memory_min_score: Annotated[float, Ge(-1), Le(1)] = RELEVANCE_THRESHOLD
    """Minimum cosine similarity of a fact to the message or to a tool's query."""
    memory_gate: Literal["auto", "model", "rules"] = "auto"
    """Decision to store a fact: by the model, or by rules. Rules store a message in the user's own words if its wording
    states a fact, and no question or courtesy; the model sums up a long message. `auto`: rules for embedded models,
    which seldom store anything."""
    near_min_score: Annotated[float, Ge(-1), Le(1)] | None = NEAR_THRESHOLD
    """Cosine similarity from which a new text may correct a stored fact: the model gets both and writes a new version.
    Rules write the user's words before the old ones. None: no text counts as a correction, and from a similarity of .9
    it counts as a duplicate."""
    change_min_score: Annotated[float, Ge(-1), Le(1)] = 0.35
    """The same for a message that rules store, if its wording names a change, as in "moved to Friday"."""
    facts_by: Literal["speaker", "owner"] = "speaker"
    """Headings of facts in a prompt: one for each of the asker, the memory's owner and other people, or one for all."""
    final_memory_retry: Annotated[int, Ge(0)] = 2
    """Further attempts to write to memory after the first."""
    max_tool_calls: Annotated[int, Ge(0)] = 5
    """Maximum number of tool calls per message."""
    max_argument_tokens: Annotated[int, Ge(1)] | None = None
    """Maximum tokens of a tool's arguments, such as the content of a file (1024 if not set). With `protocol: native`,
    one limit serves reply and arguments: `generation.max_tokens`, or this setting if it is larger."""
    history: Annotated[int, Ge(0)] = 12
    """Number of earlier messages in the prompt, tool results included. The first one is a user message."""
    context_in: Literal["user", "system", "seed"] = "user"
    """Role of facts, tool errors and the speaker's name. They are untrusted; models follow text in the system role more
    often. `seed` gives the system role to earlier tool results, too."""
    personalities: Annotated[str, AfterValidator(_checked_folder)] = str(Path(__file__).parent / "personalities")
    """Folder with `master.txt`, `stranger_1.txt` and `stranger_2.txt`."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Hooks that adapt the shared workflow to a kind of chat."""

    base_messages: Callable[[Session, UserTurn], list[str]]
    """System messages of the final response; the first is the personality."""
    speaker: Callable[[Session, UserTurn], list[str]] = lambda session, turn: []
    """Messages after the base messages that name the speaker; the speaker chooses the name."""
    prepare: Callable[[UserTurn], str] = lambda turn: turn.text
    """User's message in the form that the history stores."""
    is_owner: Callable[[Session, UserTurn], bool] = lambda session, turn: True
    """Return True if the memory belongs to the speaker; facts without a speaker's name are about its owner."""
    allowed_tools: tuple[str, ...] | None = None
    """Names of the tools that the model may use; None: all."""
    final_memory_step: bool = True
    """True if the model may write to memory."""


def personality(session: Session, name: str) -> str:
    return read_file(Path(session.settings.personalities) / f"{name}.txt")


@dataclass(frozen=True)
class PreparedTurn:
    """Values that the steps of one turn share."""

    session: Session
    messages: list[Message]
    """Conversation in the form of a request, with tool results."""
    tools: Sequence[ToolSpec]
    """Tools that the profile allows."""
    own_words: str | None
    """User's message if rules store it, None if they store nothing; "" if the model decides."""
    facts: Sequence[Fact]
    """Facts nearest to the message."""
    owner_prompt: str
    """Name of the prompt that lists facts about the owner of the memory."""

    def add(self, role: Literal["user", "agent", "system"], text: str, speaker: str | None = None) -> None:
        """Add a message to the conversation and store it."""
        self.messages.append(_as_request_message(self.session, Message(role=role, text=text, name=speaker)))
        self.session.save_message(role, text, speaker=speaker)

    @property
    def memory_context(self) -> list[Message]:
        """Messages with the facts, one for each heading."""
        by_prompt: dict[str, list[str]] = {}
        for fact in self.facts:
            other = "facts" if fact.about == self.session.speaker else "facts_of_others"
            is_owners = not fact.about or self.session.settings.facts_by == "owner"
            by_prompt.setdefault(self.owner_prompt if is_owners else other, []).append(fact_entry(fact))
        prompts = (self.session.prompt(name, facts="\n".join(lines)) for name, lines in by_prompt.items())
        return [_context_message(self.session, text) for text in prompts]


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
            messages = (*base, *prepared.messages, *prepared.memory_context)
            text = (await session.complete(messages, phase="answer")).message.text
    prepared.add("agent", text)
    return Reply(text=text)


async def process_memory(profile: Profile, turn: UserTurn, session: Session) -> None:
    """Run only steps 2, 3 and 5, for a message that needs no reply."""
    await _final_memory(profile, await _prepare_turn(profile, turn, session))


async def _prepare_turn(profile: Profile, turn: UserTurn, session: Session) -> PreparedTurn:
    """Search memory, load the history and add the message to it."""
    settings: TwoStepSettings = session.settings
    facts: tuple[Fact, ...] = ()
    if settings.automatic_memory:
        with session.step("automatic_memory"), session.continue_without_memory():
            facts = await session.recall(turn.text, top_k=settings.memory_facts)
    earlier = session.load_conversation(settings.history) if settings.history else ()
    # Start with a user message: a reply or tool result without its question would confuse the model.
    earlier = tuple(itertools.dropwhile(lambda message: message.role != "user", earlier))
    gate, is_embedded = settings.memory_gate, session.model_name.startswith("local/")
    by_rules = session.memory is not None and (gate == "rules" or (gate == "auto" and is_embedded))
    # Every later prompt may contain the fact, so the model sums up a longer message.
    own_words = turn.text if by_rules and len(turn.text) <= 1_000 else ""
    prepared = PreparedTurn(
        session,
        [_as_request_message(session, message) for message in earlier],
        _allowed_tools(profile, session),
        None if by_rules and read_intent(turn.text) != "tells" else own_words,
        facts,
        "facts" if profile.is_owner(session, turn) else "facts_of_another",
    )
    prepared.add("user", profile.prepare(turn), speaker=turn.speaker_name)
    return prepared


def _context_message(session: Session, text: str) -> Message:
    """Return a message with untrusted text beside the conversation."""
    return Message(role="user" if session.settings.context_in == "user" else "system", text=text)


def _as_request_message(session: Session, message: Message) -> Message:
    """Return a message of the history for a request; a tool result has the role `user`, since it is no instruction."""
    if message.role != "system" or session.settings.context_in == "seed":
        return message
    return replace(message, role="user")


def _allowed_tools(profile: Profile, session: Session) -> list[ToolSpec]:
    """Return the session's tools that the profile allows; tools from the data set are always allowed."""
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
        tool = await get_next_action(session, turn.messages, tools, "select_tool")
        if tool is None:
            return
        use = await use_tool(session, turn.messages, tool, "tool_args")
        if use.names_unknown_fact:
            listed = "\n".join(map(fact_entry, turn.facts))
            facts = _context_message(session, session.prompt("known_facts", facts=listed or "(none)"))
            use = await use_tool(session, turn.messages, tool, "tool_args", facts)
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
    if turn.own_words is None:
        turn.session.decide("keep message", False, "it only asks, or is courtesy")
        return
    with turn.session.step(FINAL_MEMORY):
        await (_write_memory_natively if is_native and not turn.own_words else _write_memory)(turn, tools)


async def _write_memory(turn: PreparedTurn, tools: Sequence[ToolSpec]) -> None:
    session = turn.session
    if not tools:
        session.decide("final memory step", False, "there is no memory tool to choose")
        return
    guidance = Message(role="system", text=session.prompt("memory_guidance"))
    messages = [*turn.messages, guidance, *turn.memory_context]
    tool, arguments = _write_by_rules(turn, tools) if turn.own_words else (None, {})
    tool = tool or await get_next_action(session, messages, tools, "memory_write")
    if tool is None:
        return
    failures: list[Message] = []
    for attempt in range(1 + session.settings.final_memory_retry):
        if arguments and not failures:
            call = ToolCall(id=session.new_id("call"), name=tool.name, arguments=arguments)
            use = await run_call(session, call, (tool.name,))
        else:
            use = await use_tool(session, messages, tool, "memory_write", *failures)
        if not use.failed:
            break
        session.decide("memory attempt failed", str(attempt + 1), use.result[:200])
        failures.append(_context_message(session, session.prompt("failed_before", error=use.result)))
        if NEAR_FACT in use.result:
            tool = find_tool(tools, UPDATE_MEMORY) or tool
    # The model asked for no write by rules, and a small one answers this text instead of the user.
    if use.failed or not turn.own_words:
        turn.add("system", use.for_history())


def _write_by_rules(turn: PreparedTurn, tools: Sequence[ToolSpec]) -> tuple[ToolSpec | None, dict[str, str]]:
    """Return the tool that stores the user's words, and its arguments: an update of a fact that they correct."""
    settings, words = turn.session.settings, turn.own_words or ""
    save, update = find_tool(tools, SAVE_MEMORY), find_tool(tools, UPDATE_MEMORY)
    min_score = settings.change_min_score if names_a_change(words) else settings.near_min_score
    own = [fact for fact in turn.facts if fact.about == turn.session.speaker]
    near = [fact for fact in own if min_score is not None and (fact.score or 0.0) >= min_score]
    current = near[0].text.partition(BEFORE)[0] if near else ""
    if near and words_of(current) == words_of(words):
        words = near[0].text
    elif near and update is not None:
        return update, {"memory_id": near[0].id, "new_content": f"{words}{BEFORE}{current})"}
    return save, {"content": words} if save else {}


async def _reply_natively(turn: PreparedTurn, base: Sequence[Message]) -> str:
    """Call the model, which may use tools, until it replies without a call; each request starts with `base`."""
    session = turn.session
    settings: TwoStepSettings = session.settings
    tools = tuple(_without(turn.tools, MEMORY_WRITE_TOOLS) if settings.filter_memory_tools else turn.tools)
    offered = tool_names(tools)
    calls_left, max_tokens = settings.max_tool_calls, max_argument_tokens(session)
    new_messages: list[Message] = []
    uses: list[ToolUse] = []
    with session.step("native_loop"):
        while True:
            choice = "none" if tools and calls_left <= 0 else "auto"
            messages = (*base, *turn.messages, *new_messages, *turn.memory_context)
            completion = await session.complete(messages, tools=tools, tool_choice=choice, max_tokens=max_tokens)
            reply = completion.message
            if not reply.tool_calls or calls_left <= 0:
                break
            new_messages.append(reply)
            for call in reply.tool_calls:
                if call.name not in offered:
                    # Some models call tools of earlier turns.
                    result = refuse_call(session, call)
                elif calls_left > 0:
                    uses.append(await run_call(session, call, offered))
                    result = uses[-1].result
                else:
                    result = OVER_LIMIT
                new_messages.append(tool_result_message(call, result))
                calls_left -= 1
    for use in uses:
        turn.add("system", use.for_history())
    return reply.text


async def _write_memory_natively(turn: PreparedTurn, tools: Sequence[ToolSpec]) -> None:
    """Let the model call the tools that write to memory, and repeat the model call if a tool call fails."""
    session = turn.session
    guidance = Message(role="system", text=session.prompt("native_memory_guidance"))
    messages = [*turn.messages, guidance, *turn.memory_context]
    written: list[ToolUse] = []
    failed: list[ToolUse] = []
    for attempt in range(1 + session.settings.final_memory_retry):
        try:
            limit = max_argument_tokens(session)
            completion = await session.complete(messages, tools=tools, phase="memory_write", max_tokens=limit)
            reply = completion.message
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
        results = [tool_result_message(call, use.result) for call, use in zip(reply.tool_calls, uses, strict=True)]
        messages += [reply, *results]
    for use in (*written, *failed):
        turn.add("system", use.for_history())
