"""Outer layer of the layered agent: it receives the message, runs attempts and writes the reply.

1  store the message in short-term memory; run a memory command directly, its result is the reply
2  let the model choose and sum up the relevant memories; reply now if the message needs no plan     plain
3  build the enriched message: query, context, memories, tools
4  make a strategy with steps                                      planner
5  run and evaluate the steps                                      coordinator
6  while the score is low, reflect and try again with the lessons; the best attempt counts
7  write the reply (chat and canvas) and store it in memory
8  after the reply: store what the user told, run the tool `reflection`, which stores lessons, and every few replies
   `memoryMaintenance`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from agentlab.core.constants import AFTER_RESPONSE
from agentlab.core.messages import Reply, ToolCall, UserTurn
from agentlab.core.schemas import strict_object_schema
from agentlab.flows.ego.commands import Operation, parse_command
from agentlab.flows.ego.memory import MEMORY
from agentlab.flows.ego.own_tools import MAX_NOTE_CHARS, NOTHING_LEARNED, memory_maintenance, reflect, reflection
from agentlab.flows.ego.plain import contradiction, needs_plan
from agentlab.flows.ego.planner import Strategy, make_plan
from agentlab.flows.ego.prompting import UNPARSED_KEY, ask_for_object, truncate_to_bytes
from agentlab.flows.ego.react import MAX_RESULTS_BYTES, Execution, StepResult, execute_react, notify_of_run
from agentlab.flows.ego.tool_choice import select_tools
from agentlab.flows.history_cursor import CURSOR
from agentlab.flows.json_replies import read_object, text_at
from agentlab.flows.text_files import TextFile, read_file
from agentlab.flows.tool_calls import run_tool
from agentlab.knowledge.citations import cite
from agentlab.knowledge.intent import read_intent
from agentlab.session.session import Session
from agentlab.tools import FunctionTool
from agentlab.tools.manual import tool_names

PLAIN_SCHEMA = strict_object_schema({"chat": {"type": "string"}})
REPLY_SCHEMA = strict_object_schema({"chat": {"type": "string"}, "canvas": {"type": "string"}})


@dataclass(frozen=True, kw_only=True)
class EgoSettings:
    relevance: bool = True
    """Let the model choose the relevant memories; if false, the newest ones are used."""
    plain_replies: Literal["wording", "never"] = "wording"
    """Messages that get a reply without plan and steps: `wording` reads in ten languages if a message is courtesy or
    states something, without a model call. With `never` every message gets a plan, as in older recordings."""
    planning: bool = True
    """Make a strategy first; if false, the model chooses one step at a time."""
    evaluation: bool = True
    """Evaluate every step against the success criteria; if false, the agent continues until it chooses no tool."""
    reflection: bool = True
    """Reflect after each response and before each new attempt."""
    user_facts: bool = True
    """Store a message that states a fact in long-term memory, in the user's words; rules for the wording decide."""
    max_iterations: Annotated[int, Gt(0)] = 10
    """Maximum number of steps per attempt."""
    max_replans: Annotated[int, Ge(0)] = 2
    """Further attempts at a plan that names unknown tools."""
    max_retries: Annotated[int, Ge(0)] = 1
    """Further attempts while the score is at or below the threshold."""
    success_threshold: Annotated[float, Ge(0), Le(100)] = 80.0
    """Score, out of 100, above which an attempt is good enough."""
    short_term_tokens: Annotated[int, Gt(0)] = 1_500
    """Maximum tokens of short-term memory in a prompt, newest turns first. User messages are complete, results of steps
    are shortened."""
    memory_modules: tuple[Literal["ego", "coordinator", "reflection", "memoryMaintenance"], ...] = ()
    """Modules whose memories are retrieved; empty: all modules."""
    memory_kinds: tuple[Literal["user", "command", "response", "result", "insight", "memory"], ...] = ()
    """Kinds of memories that are retrieved; empty: all kinds. `memory` is the kind of long-term entries."""
    tool_tokens: Annotated[int, Gt(0)] = 2_500
    """Maximum tokens of tools in a prompt. If not all fit, the tools nearest in wording to the task are offered."""
    tool_ranking: Literal["message", "one_text"] = "message"
    """Ranking of tools that do not all fit: `message` counts the message most and offers a tool that was called. With
    `one_text` memories count as much, and a tool that was not offered counts as unknown."""
    token_limit: Annotated[int, Gt(0)] = 10_000
    """Maximum tokens of a request, estimated as four bytes each. Longer requests are rejected, also those of tools."""
    consistent_canvas: bool = True
    """Drop a canvas that contradicts the chat: only one of them declines, or their numbers of one unit differ."""
    personality: TextFile = str(Path(__file__).parent / "personalities" / "ego.txt")
    """Path of a text file with the agent's personality, which shapes its replies."""
    maintain_every: Annotated[int, Ge(0)] = 0
    """Number of responses after which the agent maintains long-term memory; 0: only on request or by plan."""
    data: str | None = None
    """Agent's data folder, or LLM_AGENT_DATA_DIR: tools, servers, prompts, and in a chat its memory. In a
    comparison each conversation starts with an empty memory of its own."""


async def respond(turn: UserTurn, session: Session) -> Reply:
    settings: EgoSettings = session.settings
    memory, cursor = session.state(MEMORY), session.state(CURSOR)
    memory.catch_up(session)
    text = turn.text
    cursor.save_own_message(session, "user", text, speaker=turn.speaker_name)
    operation = parse_command(text)
    chat, canvas = await (
        _process_message(text, session) if operation is None else _run_memory_command(operation, text, session)
    )
    reply = "\n\n".join(part for part in (chat, canvas) if part)
    memory.note(session, "ego", "response", reply)
    session.notify("assistantResponse", chat, title="response", canvas=canvas)
    memory.responses += 1
    is_due = settings.maintain_every > 0 and memory.responses % settings.maintain_every == 0
    # Do not repeat an operation that this turn's command has just run.
    own_tools = [reflection] if settings.reflection and operation != "analysis" else []
    own_tools += [memory_maintenance] if is_due and operation != "maintenance" else []
    if settings.user_facts and operation is None and read_intent(text) == "tells":
        session.background(memory.keep_message(session, text), "keep message")
    session.background(_after_reply(session, own_tools), "after response")
    citations = cite(reply, session.turn_passages())
    cursor.save_own_message(session, "agent", reply)
    return Reply(text=reply, citations=citations, data={"chat": chat, "canvas": canvas})


async def _process_message(text: str, session: Session) -> tuple[str, str]:
    """Run steps 1 to 7 for a message to the agent; return chat and canvas of the reply."""
    plans = session.settings.plain_replies == "never"
    if not plans:
        before = session.history.chain(2)[0].text
        plans = bool(session.decide("needs a plan", needs_plan(text, before), "by its wording"))
    memory = session.state(MEMORY)
    with session.step("process_message"):
        memory.note(session, "ego", "user", text)
        with session.step("retrieve_memories"):
            memories = await memory.relevant(session, text) or "(none)"
        if not plans:
            return await _write_reply("plain", PLAIN_SCHEMA, session, query=text, memories=memories)
        tool_query = f"{text}\n{memories}"
        ranked = text if session.settings.tool_ranking == "message" else ""
        tools = select_tools(session, tool_query, message=ranked)
        message = session.prompt(
            "enriched_message",
            query=text,
            now=f"{session.now:%A, %Y-%m-%d, %H:%M}",
            memories=memories,
            tools=", ".join(tool.spec.name for tool in tools) or "none",
        )
        session.notify("debugResponse", message[:500], title="enriched message")
    execution = await _run_attempts(message, ranked, tool_query, session)
    result = _result_of(execution)
    with session.step("handle_bubble"):
        session.notify("bubble", result[:500], title="result")
        facts = truncate_to_bytes(result, MAX_RESULTS_BYTES) or "(nothing was done; answer from what you know)"
        chat, canvas = await _write_reply("bubble", REPLY_SCHEMA, session, query=text, memories=memories, result=facts)
        return (chat, canvas) if chat or canvas else (result, "")


async def _run_memory_command(operation: Operation, text: str, session: Session) -> tuple[str, str]:
    """Run a memory command; return chat and canvas of its result."""
    with session.step("process_message"):
        session.state(MEMORY).note(session, "ego", "user", text)
        session.decide("command to the memory", operation)
    result, failed = await _run_own_tool(memory_maintenance if operation == "maintenance" else reflection, session)
    if failed or operation == "maintenance" or result == NOTHING_LEARNED:
        return result, ""
    return "Memory analysis: this was learned, and is kept.", "\n".join(f"* {line}" for line in result.splitlines())


async def _run_attempts(message: str, ranked: str, tool_query: str, session: Session) -> Execution:
    """Run steps 4 to 6 and return the best attempt."""
    settings: EgoSettings = session.settings
    lessons: list[str] = []
    attempts: list[Execution] = []
    steps: list[StepResult] = []
    while True:
        session.notify("systemStatusMessage", f"attempt {len(attempts) + 1}", title="status: at work")
        strategy = Strategy()
        query = "\n".join([tool_query, *lessons])
        offer = partial(select_tools, session, query, message=ranked)
        tools = offer()
        if settings.planning and tools:
            with session.step("make_plan"):
                results = [f"These steps were taken:\n{attempts[-1].results()}"] if steps else []
                strategy = await make_plan(session, message, tools, offer, [*lessons, *results])
            planned = {str(step.tool) for step in strategy.steps}
            tools = tools if planned <= set(tool_names(tool.spec for tool in tools)) else offer(planned)
        execution = Execution(message, tool_query, strategy, tools, tuple(lessons), tuple(steps), ranked=ranked)
        with session.step("execute_react"):
            await execute_react(execution, session)
        attempts.append(execution)
        steps += execution.steps
        if _good_enough(execution, session) or len(attempts) > settings.max_retries:
            return max(attempts, key=lambda attempt: attempt.sort_key)
        lessons.append(_shortcomings(execution))
        if settings.reflection:
            evaluation = f"\n\n{_shortcomings(execution)}\n{execution.results()[:MAX_NOTE_CHARS]}"
            lessons += (await reflect(session, evaluation))["lessons"]


def _good_enough(execution: Execution, session: Session) -> bool:
    threshold = session.settings.success_threshold
    evaluation = execution.last_evaluation
    if not execution.steps:
        # A first attempt without steps is enough; after a failed attempt it is not.
        passed, status = not execution.lessons, "nothing was done"
    elif evaluation is None:
        passed, status = True, "not judged"
    elif evaluation.score is None:
        passed, status = False, "unread"
    else:
        passed, status = evaluation.score > threshold, f"score {evaluation.score:g}"
    reason = f"{status}, threshold {threshold:g}{', every step failed' if execution.failed else ''}"
    return bool(session.decide("good enough", passed and not execution.failed, reason))


def _shortcomings(execution: Execution) -> str:
    """Return the shortcomings of an attempt as a text for the next one."""
    last = execution.last_evaluation
    failed = "" if execution.steps else " Nothing was done."
    failed = f" Every step failed: {execution.steps[-1].result[:300]}" if execution.failed else failed
    score = f" It was judged {last.score:g} of 100. {last.comment}" if last and last.score is not None else ""
    return f"An earlier attempt was not good enough.{failed}{score}"


def _result_of(execution: Execution) -> str:
    """Return an error, the only result, or a JSON object with the results of all steps."""
    if execution.failed:
        return f"Error: {execution.steps[-1].result.removeprefix('Error: ')}"
    steps = execution.successful_steps
    if len(steps) <= 1:
        return steps[0].result if steps else ""
    max_bytes = MAX_RESULTS_BYTES // (len(steps) + 1)
    response = [{"tool": step.planned.tool, "result": truncate_to_bytes(step.result, max_bytes)} for step in steps]
    results = {"type": "steps", "response": response, "complete": not execution.limit_reached}
    return json.dumps(results, ensure_ascii=False)


async def _write_reply(prompt: str, schema: dict[str, Any], session: Session, **values: str) -> tuple[str, str]:
    """Let the model write the reply; return its chat and canvas, both empty for an empty completion."""
    personality = read_file(session.settings.personality)
    data = await ask_for_object(session, prompt, schema, "answer", personality=personality, **values)
    chat, canvas = text_at(data, "chat"), text_at(data, "canvas")
    if not chat and not canvas:
        # Use the texts of a completion in another form.
        raw = text_at(data, UNPARSED_KEY).strip()
        texts = [value for value in (read_object(raw) or {}).values() if isinstance(value, str)]
        return "\n".join(texts) or raw, ""
    if session.settings.consistent_canvas and chat and canvas and (problem := contradiction(chat, canvas)):
        session.decide("canvas", False, problem)
        return chat, ""
    return chat, canvas


async def _after_reply(session: Session, tools: Sequence[FunctionTool]) -> None:
    with session.step(AFTER_RESPONSE):
        for tool in tools:
            await _run_own_tool(tool, session)


async def _run_own_tool(tool: FunctionTool, session: Session) -> tuple[str, bool]:
    """Run one of the agent's own tools, even if the data set supplies a tool of the same name."""
    name = tool.spec.name
    if session.tools.get(name) is tool:
        result, failed = await run_tool(session, ToolCall(id=session.new_id("call"), name=name))
    else:
        result, failed = await tool.run({}, session), False
    notify_of_run(session, name, result, failed)
    return result, failed
