"""The layered agent's coordinator: carries a strategy out step by step, acting and looking at what came of it.

until the iterations are used up:
    the next step    of a simple strategy the planned one, else what `next_step` says in view of the last results
                     (a strategy with steps begins with one: from nothing there is nothing to answer)
    act              the tool runs, with parameters brought into the form it wants; an error is a result, too
    evaluate         how far the success criteria are met; once they are, or nothing is left to do, it is over

How sure the evaluation has to be: of a simple strategy's first step, which may then be the only one, and of all of a
complex one, confident; of a moderate one its word is enough.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentlab.core.constants import INVALID_CHOICE
from agentlab.core.messages import ToolCall
from agentlab.core.protocols import Tool
from agentlab.core.schemas import strict_object_schema
from agentlab.flows.ego.memory import MEMORY
from agentlab.flows.ego.own_tools import MAX_NOTE_CHARS
from agentlab.flows.ego.parameters import map_parameters
from agentlab.flows.ego.planner import PlannedStep, Strategy, read_step, step_schemas
from agentlab.flows.ego.prompting import UNPARSED_KEY, ask_for_object, bounded_text_at, cut_to_bytes
from agentlab.flows.ego.tool_choice import select_tools
from agentlab.flows.json_replies import number_at, text_at
from agentlab.flows.tool_calls import run_tool
from agentlab.session.session import Session
from agentlab.tools.manual import find_tool, tool_manual, tool_names

EVALUATION = strict_object_schema(
    {
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "complete": {"type": "boolean"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "comment": {"type": "string"},
    }
)
ROOM_FOR_RESULTS = 10_000
"""Bytes that the results of all steps together may take in a prompt."""
CONFIDENT = 0.8
NO_STEP = "(none)"
"""What stands for the tool of a step that could not be read."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    score: float | None
    """Out of 100; None where the model gave none."""
    complete: bool
    confidence: float
    comment: str


@dataclass
class StepResult:
    planned: PlannedStep
    result: str
    failed: bool
    evaluation: Evaluation | None = None


@dataclass
class Execution:
    """A strategy that is being carried out, and what became of it."""

    message: str
    tool_query: str
    """In whose words the tools are chosen, where there are too many."""
    strategy: Strategy
    tools: Sequence[Tool]
    """Those that were offered last."""
    lessons: Sequence[str]
    """Of earlier attempts."""
    earlier: Sequence[StepResult] = ()
    """The steps of earlier attempts: what they found is there for this one, too."""
    steps: list[StepResult] = field(default_factory=list)
    limit_reached: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.steps) and all(step.failed for step in self.steps)

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The last evaluation; None where nothing was evaluated."""
        return next((step.evaluation for step in reversed(self.steps) if step.evaluation is not None), None)

    @property
    def sort_key(self) -> tuple[bool, bool, float]:
        """The greater, the better: what has a result, then what was tried at least, then the score.

        A judgement that could not be read, or that was not made, is below all others.
        """
        score = self.last_evaluation.score if self.last_evaluation is not None else None
        has_result = any(not step.failed for step in self.steps)
        return has_result, bool(self.steps), -1.0 if score is None else score

    @property
    def successful_steps(self) -> list[StepResult]:
        """The steps that have a result, those of earlier attempts first."""
        return [step for step in (*self.earlier, *self.steps) if not step.failed]

    def results(self) -> str:
        """All steps as prompts show them, those of earlier attempts first."""
        room = ROOM_FOR_RESULTS // max(1, len(self.earlier) + len(self.steps))
        lines = []
        for number, step in enumerate((*self.earlier, *self.steps), 1):
            parameters = json.dumps(step.planned.parameters, ensure_ascii=False, default=str)[:300]
            attempt = "earlier attempt: " if number <= len(self.earlier) else ""
            lines.append(f"{number}. {attempt}{step.planned.tool}({parameters})")
            lines.append("  result: " + cut_to_bytes(step.result.replace("\n", "\n    "), room))
            if step.evaluation is not None:
                lines.append(f"  judged: {step.evaluation.score}, {step.evaluation.comment[:200]}")
        return "\n".join(lines) or "(none)"


async def execute_react(execution: Execution, session: Session) -> None:
    """Carry out the strategy, within the limit of the settings; every result is noted in short-term memory, too.

    Raises what the model raises.
    """
    strategy, steps = execution.strategy, execution.steps
    is_simple = strategy.complexity == "simple"
    planned = list(strategy.steps)
    most = session.settings.max_iterations
    if not execution.tools or (is_simple and not planned):
        session.decide("next step", "none", "the strategy needs none" if execution.tools else "there are no tools")
        return
    for iteration in range(most):
        step = planned.pop(0) if is_simple and planned else await _next_step(execution, session)
        if step.tool is None:
            session.decide("next step", "none", step.purpose)
            return
        session.decide("next step", INVALID_CHOICE if step.tool == NO_STEP else step.tool, step.purpose)
        session.notify("subsystemMessage", step.purpose[:500], title=f"next step: {step.tool}")
        taken = StepResult(step, *await _act(step, execution.tools, session))
        steps.append(taken)
        session.state(MEMORY).note(session, "coordinator", "result", f"{step.tool}: {taken.result[:MAX_NOTE_CHARS]}")
        if not session.settings.evaluation or step.tool == NO_STEP:
            if is_simple and not planned and not taken.failed:
                return
            continue
        found = taken.evaluation = await _evaluate(execution, session)
        has_to_be_sure = strategy.complexity == "complex" or (is_simple and iteration == 0)
        if found.complete and (found.confidence >= CONFIDENT or not has_to_be_sure):
            session.decide("complete", True, f"score {found.score}, confidence {found.confidence:g}")
            return
    execution.limit_reached = True
    session.decide("iteration limit reached", True, f"{most} steps")
    session.notify("systemError", f"{most} steps were not enough", title="coordinator: iteration limit")


async def _next_step(execution: Execution, session: Session) -> PlannedStep:
    strategy = execution.strategy
    steps = f"({strategy.outline()})" if strategy.steps else ""
    # A server may have changed its list since the last step.
    so_far = [execution.tool_query, steps, *(step.evaluation.comment for step in execution.steps if step.evaluation)]
    execution.tools = select_tools(session, "\n".join(so_far), [str(step.tool) for step in strategy.steps])
    may_end: list[dict[str, Any]] = [{"type": "null"}] if execution.steps or not strategy.steps else []
    found = await ask_for_object(
        session,
        "next_step",
        strict_object_schema({"step": {"anyOf": step_schemas([tool.spec for tool in execution.tools]) + may_end}}),
        "step",
        message=execution.message,
        strategy=f"{strategy.approach} {steps}".strip() or "(none)",
        lessons="".join(f"Lesson: {lesson}\n" for lesson in execution.lessons),
        tools=tool_manual(execution.tools),
        steps=execution.results(),
    )
    step = found.get("step")
    if UNPARSED_KEY in found or not (step is None or isinstance(step, dict)):
        # Not the same as wanting none: it is told, counts as a step, and the next prompt is another.
        return PlannedStep(tool=NO_STEP, purpose="the answer could not be read")
    return read_step(step or {})


async def _act(step: PlannedStep, tools: Sequence[Tool], session: Session) -> tuple[str, bool]:
    """The result, and whether it is an error."""
    name = str(step.tool)
    specs = [tool.spec for tool in tools]
    spec = find_tool(specs, name)
    if spec is None:
        # A tool that is there but not offered does not run either.
        result, failed = f"Error: there is no tool {name}; there are: {', '.join(tool_names(specs))}", True
    else:
        arguments = map_parameters(spec, step.parameters)
        call = ToolCall(id=session.new_id("call"), name=name, arguments=arguments)
        result, failed = await run_tool(session, call)
    notify_of_run(session, name, result, failed)
    return result, failed


def notify_of_run(session: Session, tool: str, result: str, failed: bool) -> None:
    """The event of a tool that ran, or failed to."""
    name, outcome = ("systemError", "failed") if failed else ("subsystemMessage", "ran")
    session.notify(name, result[:500], title=f"tool {tool}: {outcome}")


async def _evaluate(execution: Execution, session: Session) -> Evaluation:
    criteria = "; ".join(execution.strategy.success_criteria) or "the request is answered"
    values = {"message": execution.message, "criteria": criteria, "steps": execution.results()}
    found = await ask_for_object(session, "evaluate_step", EVALUATION, "evaluate", **values)
    return Evaluation(
        score=number_at(found, "score", 0, 100),
        complete=found.get("complete") is True or text_at(found, "complete").lower() in ("true", "yes"),
        confidence=number_at(found, "confidence", 0, 1) or 0.0,
        comment=bounded_text_at(found, "comment"),
    )
