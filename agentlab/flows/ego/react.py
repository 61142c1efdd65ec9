"""Layered agent's coordinator: it runs a strategy step by step and evaluates the results.

until the iterations are used up:
    next step    a simple strategy's planned step; otherwise the prompt `next_step` chooses one from the last results
                 (a strategy with steps starts with a step, because without results there is nothing to answer)
    act          run the tool with repaired parameters; an error is a result, too
    evaluate     check the success criteria; stop once they are met or no step is left

The evaluation must be confident to stop after the first step of a simple strategy, and at any step of a complex one.
For a moderate strategy any confidence is enough.
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
from agentlab.flows.ego.prompting import UNPARSED_KEY, ask_for_object, bounded_text_at, truncate_to_bytes
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
MAX_RESULTS_BYTES = 10_000
"""Maximum bytes of the results of all steps together in a prompt."""
CONFIDENT = 0.8
"""Confidence, from 0 to 1, at which an evaluation counts as confident."""
NO_STEP = "(none)"
"""Tool name of a step that could not be read."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    score: float | None
    """Score from 0 to 100; None if the model gave none."""
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
    """One attempt: a strategy and the steps taken so far."""

    message: str
    tool_query: str
    """Query that selects the tools if not all fit into the prompt."""
    strategy: Strategy
    tools: Sequence[Tool]
    """Tools of the last prompt."""
    lessons: Sequence[str]
    """Lessons of earlier attempts."""
    earlier: Sequence[StepResult] = ()
    """Steps of earlier attempts, whose results this attempt may use."""
    steps: list[StepResult] = field(default_factory=list)
    limit_reached: bool = False
    ranked: str = ""
    """Message that counts most in the selection of tools; "" if it counts like the rest of `tool_query`."""

    @property
    def failed(self) -> bool:
        return bool(self.steps) and all(step.failed for step in self.steps)

    @property
    def last_evaluation(self) -> Evaluation | None:
        """Last evaluation; None if no step was evaluated."""
        return next((step.evaluation for step in reversed(self.steps) if step.evaluation is not None), None)

    @property
    def sort_key(self) -> tuple[bool, bool, float]:
        """Rank of the attempt: first with a result or without, then with steps or without, then its score.

        An unknown score ranks below all others.
        """
        score = self.last_evaluation.score if self.last_evaluation is not None else None
        has_result = any(not step.failed for step in self.steps)
        return has_result, bool(self.steps), -1.0 if score is None else score

    @property
    def successful_steps(self) -> list[StepResult]:
        """Steps with a result, those of earlier attempts first."""
        return [step for step in (*self.earlier, *self.steps) if not step.failed]

    def results(self) -> str:
        """Return all steps as lines of a prompt, those of earlier attempts first."""
        max_bytes = MAX_RESULTS_BYTES // max(1, len(self.earlier) + len(self.steps))
        lines = []
        for number, step in enumerate((*self.earlier, *self.steps), 1):
            parameters = json.dumps(step.planned.parameters, ensure_ascii=False, default=str)[:300]
            attempt = "earlier attempt: " if number <= len(self.earlier) else ""
            lines.append(f"{number}. {attempt}{step.planned.tool}({parameters})")
            lines.append("  result: " + truncate_to_bytes(step.result.replace("\n", "\n    "), max_bytes))
            if step.evaluation is not None:
                lines.append(f"  judged: {step.evaluation.score}, {step.evaluation.comment[:200]}")
        return "\n".join(lines) or "(none)"


async def execute_react(execution: Execution, session: Session) -> None:
    """Run the strategy for at most `max_iterations` steps and note every result in short-term memory.

    Raises the errors of the model.
    """
    strategy, steps = execution.strategy, execution.steps
    is_simple = strategy.complexity == "simple"
    planned = list(strategy.steps)
    max_steps = session.settings.max_iterations
    if not execution.tools or (is_simple and not planned):
        session.decide("next step", "none", "the strategy needs none" if execution.tools else "there are no tools")
        return
    for iteration in range(max_steps):
        step = planned.pop(0) if is_simple and planned else await _next_step(execution, session)
        if step.tool is None:
            session.decide("next step", "none", step.purpose)
            return
        session.decide("next step", INVALID_CHOICE if step.tool == NO_STEP else step.tool, step.purpose)
        session.notify("subsystemMessage", step.purpose[:500], title=f"next step: {step.tool}")
        outcome = StepResult(step, *await _act(step, execution, session))
        steps.append(outcome)
        session.state(MEMORY).note(session, "coordinator", "result", f"{step.tool}: {outcome.result[:MAX_NOTE_CHARS]}")
        if not session.settings.evaluation or step.tool == NO_STEP:
            if is_simple and not planned and not outcome.failed:
                return
            continue
        evaluation = outcome.evaluation = await _evaluate(execution, session)
        must_be_confident = strategy.complexity == "complex" or (is_simple and iteration == 0)
        if evaluation.complete and (evaluation.confidence >= CONFIDENT or not must_be_confident):
            session.decide("complete", True, f"score {evaluation.score}, confidence {evaluation.confidence:g}")
            return
    execution.limit_reached = True
    session.decide("iteration limit reached", True, f"{max_steps} steps")
    session.notify("systemError", f"{max_steps} steps were not enough", title="coordinator: iteration limit")


async def _next_step(execution: Execution, session: Session) -> PlannedStep:
    strategy = execution.strategy
    steps = f"({strategy.outline()})" if strategy.steps else ""
    # Select the tools again: a server may have changed its list since the last step.
    texts = [execution.tool_query, steps, *(step.evaluation.comment for step in execution.steps if step.evaluation)]
    needed = [str(step.tool) for step in strategy.steps]
    if execution.ranked:
        # A tool that was called and not offered is offered now.
        needed += [str(step.planned.tool) for step in execution.steps]
    execution.tools = select_tools(session, "\n".join(texts), needed, message=execution.ranked)
    no_step: list[dict[str, Any]] = [{"type": "null"}] if execution.steps or not strategy.steps else []
    data = await ask_for_object(
        session,
        "next_step",
        strict_object_schema({"step": {"anyOf": step_schemas([tool.spec for tool in execution.tools]) + no_step}}),
        "step",
        message=execution.message,
        strategy=f"{strategy.approach} {steps}".strip() or "(none)",
        lessons="".join(f"Lesson: {lesson}\n" for lesson in execution.lessons),
        tools=tool_manual(execution.tools),
        steps=execution.results(),
    )
    step = data.get("step")
    if UNPARSED_KEY in data or not (step is None or isinstance(step, dict)):
        # An unreadable completion counts as a step, so that the next prompt differs and reports the error.
        return PlannedStep(tool=NO_STEP, purpose="the answer could not be read")
    return read_step(step or {})


async def _act(step: PlannedStep, execution: Execution, session: Session) -> tuple[str, bool]:
    """Run a step's tool; return its result and True if the result is an error."""
    name = str(step.tool)
    specs = [tool.spec for tool in execution.tools]
    spec = find_tool(specs, name)
    if spec is None and execution.ranked and name in session.tools:
        result, failed = f"Error: not run, {name} was not offered; it is offered from now on", True
    elif spec is None:
        # A tool that exists but is not offered does not run either.
        result, failed = f"Error: there is no tool {name}; there are: {', '.join(tool_names(specs))}", True
    else:
        arguments = map_parameters(spec, step.parameters)
        call = ToolCall(id=session.new_id("call"), name=name, arguments=arguments)
        result, failed = await run_tool(session, call)
    notify_of_run(session, name, result, failed)
    return result, failed


def notify_of_run(session: Session, tool: str, result: str, failed: bool) -> None:
    """Emit the event of a tool run or its failure."""
    name, outcome = ("systemError", "failed") if failed else ("subsystemMessage", "ran")
    session.notify(name, result[:500], title=f"tool {tool}: {outcome}")


async def _evaluate(execution: Execution, session: Session) -> Evaluation:
    criteria = "; ".join(execution.strategy.success_criteria) or "the request is answered"
    values = {"message": execution.message, "criteria": criteria, "steps": execution.results()}
    data = await ask_for_object(session, "evaluate_step", EVALUATION, "evaluate", **values)
    return Evaluation(
        score=number_at(data, "score", 0, 100),
        complete=data.get("complete") is True or text_at(data, "complete").lower() in ("true", "yes"),
        confidence=number_at(data, "confidence", 0, 1) or 0.0,
        comment=bounded_text_at(data, "comment"),
    )
