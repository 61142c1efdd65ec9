"""The layered agent's outer layer: takes the message in, has it carried out, and puts the result into words.

1  the message into short-term memory; where it is a command to the memory, that is carried out and is the answer
2  memories that matter: chosen and summed up by the model
3  the enriched message: query, context, memories, capabilities
4  a strategy with steps                                           planner
5  step by step, acting and evaluating                             coordinator
6  again with the lessons of a reflection, while the score is low and attempts are left; the best attempt counts
7  the result in the agent's own words, chat and canvas, into memory
8  after the response: the `reflection` tool, whose lessons go into long-term memory; now and then `memoryMaintenance`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from agentlab.core.constants import AFTER_RESPONSE
from agentlab.core.messages import Reply, ToolCall, UserTurn
from agentlab.core.schemas import strict_object_schema
from agentlab.flows.ego.commands import Operation, parse_command
from agentlab.flows.ego.memory import MEMORY
from agentlab.flows.ego.own_tools import MAX_NOTE_CHARS, NOTHING_LEARNED, memory_maintenance, reflect, reflection
from agentlab.flows.ego.planner import Strategy, make_plan
from agentlab.flows.ego.prompting import UNPARSED_KEY, ask_for_object, cut_to_bytes
from agentlab.flows.ego.react import ROOM_FOR_RESULTS, Execution, StepResult, execute_react, notify_of_run
from agentlab.flows.ego.tool_choice import select_tools
from agentlab.flows.history_cursor import CURSOR
from agentlab.flows.json_replies import read_object, text_at
from agentlab.flows.text_files import TextFile, read_file
from agentlab.flows.tool_calls import run_tool
from agentlab.knowledge.citations import cite
from agentlab.session.session import Session
from agentlab.tools import FunctionTool

REPLY_SCHEMA = strict_object_schema({"chat": {"type": "string"}, "canvas": {"type": "string"}})


@dataclass(frozen=True, kw_only=True)
class EgoSettings:
    relevance: bool = True
    """Have the model choose the memories that matter; without it the newest are shown."""
    planning: bool = True
    """Make a strategy first; without it every step is chosen as it comes."""
    evaluation: bool = True
    """Judge every step against the criteria of success; without it the agent goes on until it wants no tool."""
    reflection: bool = True
    """Look back after each response, and before each new attempt."""
    max_iterations: Annotated[int, Gt(0)] = 10
    """Steps of one attempt, at the most."""
    max_replans: Annotated[int, Ge(0)] = 2
    """How often a plan is asked for anew that names tools that do not exist."""
    max_retries: Annotated[int, Ge(0)] = 1
    """Further attempts while the score is at or below the threshold."""
    success_threshold: Annotated[float, Ge(0), Le(100)] = 80.0
    """The score, out of 100, above which an attempt is good enough."""
    short_term_tokens: Annotated[int, Gt(0)] = 1_500
    """What short-term memory may take in a prompt, newest turns first: the user's messages are whole, results of steps
    are shortened."""
    memory_modules: tuple[Literal["ego", "coordinator", "reflection", "memoryMaintenance"], ...] = ()
    """Retrieve only memories that these modules wrote; all, if none is named."""
    memory_kinds: tuple[Literal["user", "command", "response", "result", "insight", "memory"], ...] = ()
    """Retrieve only memories of these kinds, `memory` being what long-term memory holds; all, if none is named."""
    tool_tokens: Annotated[int, Gt(0)] = 2_500
    """What tools may take in a prompt; of more than fit, those are offered whose words are nearest to what is to be
    done."""
    token_limit: Annotated[int, Gt(0)] = 10_000
    """Longer requests are rejected, those of its tools too; estimated, four bytes a token."""
    personality: TextFile = str(Path(__file__).parent / "personalities" / "ego.txt")
    """A text file: who the agent is, when it puts a result into words."""
    maintain_every: Annotated[int, Ge(0)] = 0
    """Tidy long-term memory after so many responses; 0: only when it is asked for or planned."""
    data: str | None = None
    """The agent's data folder, or LLM_AGENT_DATA_DIR: tools, servers, prompts, and in a chat its memory. In a
    comparison each conversation starts with an empty memory of its own."""


async def respond(turn: UserTurn, session: Session) -> Reply:
    settings: EgoSettings = session.settings
    memory, cursor = session.state(MEMORY), session.state(CURSOR)
    memory.catch_up(session)
    text = turn.text
    cursor.save_own_message(session, "user", text, speaker=turn.speaker_name)
    operation = parse_command(text)
    chat, canvas = await (
        _answer(text, session) if operation is None else _run_memory_command(operation, text, session)
    )
    whole = "\n\n".join(part for part in (chat, canvas) if part)
    memory.note(session, "ego", "response", whole)
    session.notify("assistantResponse", chat, title="response", canvas=canvas)
    memory.responses += 1
    tidy = settings.maintain_every > 0 and memory.responses % settings.maintain_every == 0
    # What was just done on command is not done again.
    own = [reflection] if settings.reflection and operation != "analysis" else []
    own += [memory_maintenance] if tidy and operation != "maintenance" else []
    session.background(_after_reply(session, own), "after response")
    citations = cite(whole, session.turn_passages())
    cursor.save_own_message(session, "agent", whole)
    return Reply(text=whole, citations=citations, data={"chat": chat, "canvas": canvas})


async def _answer(text: str, session: Session) -> tuple[str, str]:
    """Chat and canvas of a message to the agent."""
    memory = session.state(MEMORY)
    with session.step("process_message"):
        memory.note(session, "ego", "user", text)
        with session.step("retrieve_memories"):
            memories = await memory.relevant(session, text) or "(none)"
        wanted = f"{text}\n{memories}"
        tools = select_tools(session, wanted)
        message = session.prompt(
            "enriched_message",
            query=text,
            now=f"{session.now:%A, %Y-%m-%d, %H:%M}",
            memories=memories,
            tools=", ".join(tool.spec.name for tool in tools) or "none",
        )
        session.notify("debugResponse", message[:500], title="enriched message")
    execution = await _run_attempts(message, wanted, session)
    return await _write_reply(text, memories, _result_of(execution), session)


async def _run_memory_command(operation: Operation, text: str, session: Session) -> tuple[str, str]:
    """Chat and canvas of a command to the memory: what the operation says was done, in its own words."""
    with session.step("process_message"):
        session.state(MEMORY).note(session, "ego", "user", text)
        session.decide("command to the memory", operation)
    result, failed = await _run_own_tool(memory_maintenance if operation == "maintenance" else reflection, session)
    if failed or operation == "maintenance" or result == NOTHING_LEARNED:
        return result, ""
    return "Memory analysis: this was learned, and is kept.", "\n".join(f"* {line}" for line in result.splitlines())


async def _run_attempts(message: str, wanted: str, session: Session) -> Execution:
    """Steps 4 to 6; returns the best attempt."""
    settings: EgoSettings = session.settings
    lessons: list[str] = []
    attempts: list[Execution] = []
    taken: list[StepResult] = []
    while True:
        session.notify("systemStatusMessage", f"attempt {len(attempts) + 1}", title="status: at work")
        strategy = Strategy()
        tools = select_tools(session, "\n".join([wanted, *lessons]))
        if settings.planning and tools:
            with session.step("make_plan"):
                found = [f"These steps were taken:\n{attempts[-1].results()}"] if taken else []
                strategy = await make_plan(session, message, tools, [*lessons, *found])
        execution = Execution(message, wanted, strategy, tools, tuple(lessons), tuple(taken))
        with session.step("execute_react"):
            await execute_react(execution, session)
        attempts.append(execution)
        taken += execution.steps
        if _good_enough(execution, session) or len(attempts) > settings.max_retries:
            return max(attempts, key=lambda attempt: attempt.sort_key)
        lessons.append(_shortcomings(execution))
        if settings.reflection:
            evaluation = f"\n\n{_shortcomings(execution)}\n{execution.results()[:MAX_NOTE_CHARS]}"
            lessons += (await reflect(session, evaluation))["lessons"]


def _good_enough(execution: Execution, session: Session) -> bool:
    threshold = session.settings.success_threshold
    judgement = execution.last_evaluation
    if not execution.steps:
        # With nothing to do it is enough; after an attempt that was not, it is no better.
        passed, judged = not execution.lessons, "nothing was done"
    elif judgement is None:
        passed, judged = True, "not judged"
    elif judgement.score is None:
        passed, judged = False, "unread"
    else:
        passed, judged = judgement.score > threshold, f"score {judgement.score:g}"
    why = f"{judged}, threshold {threshold:g}{', every step failed' if execution.failed else ''}"
    return bool(session.decide("good enough", passed and not execution.failed, why))


def _shortcomings(execution: Execution) -> str:
    """What went wrong with an attempt, for the next one."""
    judged = execution.last_evaluation
    failed = "" if execution.steps else " Nothing was done."
    failed = f" Every step failed: {execution.steps[-1].result[:300]}" if execution.failed else failed
    score = f" It was judged {judged.score:g} of 100. {judged.comment}" if judged and judged.score is not None else ""
    return f"An earlier attempt was not good enough.{failed}{score}"


def _result_of(execution: Execution) -> str:
    """In one of three forms: an error, the one text there is, or an object with all steps as JSON."""
    if execution.failed:
        return f"Error: {execution.steps[-1].result.removeprefix('Error: ')}"
    good = execution.successful_steps
    if not good:
        return ""
    if len(good) == 1:
        return good[0].result
    room = ROOM_FOR_RESULTS // (len(good) + 1)
    response = [{"tool": step.planned.tool, "result": cut_to_bytes(step.result, room)} for step in good]
    told = {"type": "steps", "response": response, "complete": not execution.limit_reached}
    return json.dumps(told, ensure_ascii=False)


async def _write_reply(query: str, memories: str, result: str, session: Session) -> tuple[str, str]:
    """The result as what the user reads: chat and canvas."""
    with session.step("handle_bubble"):
        session.notify("bubble", result[:500], title="result")
        found = await ask_for_object(
            session,
            "bubble",
            REPLY_SCHEMA,
            "answer",
            personality=read_file(session.settings.personality),
            query=query,
            memories=memories,
            result=cut_to_bytes(result, ROOM_FOR_RESULTS) or "(nothing was done; answer from what you know)",
        )
    chat, canvas = text_at(found, "chat"), text_at(found, "canvas")
    if not chat and not canvas:
        # What a reply of another form says; of one that says nothing, what there was to tell.
        raw = text_at(found, UNPARSED_KEY).strip()
        texts = [value for value in (read_object(raw) or {}).values() if isinstance(value, str)]
        chat = "\n".join(texts) or raw or result
    return chat, canvas


async def _after_reply(session: Session, tools: Sequence[FunctionTool]) -> None:
    with session.step(AFTER_RESPONSE):
        for tool in tools:
            await _run_own_tool(tool, session)


async def _run_own_tool(tool: FunctionTool, session: Session) -> tuple[str, bool]:
    """One of the agent's own tools; where a conversation brought one of that name, still its own."""
    name = tool.spec.name
    if session.tools.get(name) is tool:
        result, failed = await run_tool(session, ToolCall(id=session.new_id("call"), name=name))
    else:
        result, failed = await tool.run({}, session), False
    notify_of_run(session, name, result, failed)
    return result, failed
