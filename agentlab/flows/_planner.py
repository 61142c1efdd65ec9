"""The layered agent's planner: one call yields strategy and steps, whose tools are checked against those there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentlab.flows._asking import ask, closed, text_of, texts_of
from agentlab.messages import ToolSpec
from agentlab.session import Session
from agentlab.tools._registry import tool_list_for_prompt

Complexity = Literal["simple", "moderate", "complex"]
COMPLEXITIES: tuple[Complexity, ...] = ("simple", "moderate", "complex")
MOST_STEPS = 8

PROMPTS = {
    "plan": (
        "Plan how to answer. Reply with one JSON object: the approach in a sentence; its complexity (simple: one step,"
        " moderate, complex); by which signs success can be told; and the steps, each with a tool of the list, its"
        " parameters and its purpose. No steps are needed for what you can answer at once.\n\n{message}\n\nTools:"
        "\n{tools}{problem}"
    ),
}


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    tool: str | None
    """None: nothing more is to be done."""
    purpose: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    approach: str = ""
    complexity: Complexity = "moderate"
    success_criteria: tuple[str, ...] = ()
    steps: tuple[PlannedStep, ...] = ()


async def make_plan(
    session: Session,
    message: str,
    tools: Sequence[ToolSpec],
    *,
    max_replans: int,
    token_limit: int,
    problem: str = "",
) -> Strategy:
    """A strategy whose steps name tools that exist; asked for anew, with the reason, while they do not.

    `problem` is what went wrong with an earlier plan. After `max_replans` the steps nobody can carry out are left out.
    """
    names = [tool.name for tool in tools]
    for attempt in range(1 + max_replans):
        found = await ask(
            session,
            "plan",
            schema(names),
            "plan",
            token_limit,
            message=message,
            tools=tool_list_for_prompt(tools) or "(none)",
            problem=f"\n\nAn earlier plan failed: {problem}" if problem else "",
        )
        strategy = _read(found)
        unknown = sorted({step.tool or "?" for step in strategy.steps if step.tool not in names})
        session.notify("subsystemMessage", strategy.approach[:200], title=f"plan: {strategy.complexity}")
        if not unknown:
            return strategy
        problem = f"there is no tool {', '.join(unknown)}; there are: {', '.join(names) or 'none'}"
        session.decide("plan names unknown tools", ", ".join(unknown), f"attempt {attempt + 1}")
    known = tuple(step for step in strategy.steps if step.tool in names)
    return Strategy(
        approach=strategy.approach,
        complexity=strategy.complexity,
        success_criteria=strategy.success_criteria,
        steps=known,
    )


def schema(names: Sequence[str]) -> dict[str, Any]:
    """Of a plan; tools are a free string, because what a model that is not constrained invents has to be told apart."""
    step = closed(tool={"type": "string"}, purpose={"type": "string"}, parameters={"type": "object"})
    return closed(
        approach={"type": "string"},
        complexity={"enum": list(COMPLEXITIES)},
        success_criteria={"type": "array", "items": {"type": "string"}, "maxItems": 3},
        steps={"type": "array", "items": step, "maxItems": MOST_STEPS},
    )


def read_step(found: dict[str, Any]) -> PlannedStep:
    """A step as a model wrote it; without a tool where it names none."""
    tool = found.get("tool")
    parameters = found.get("parameters")
    named = tool.strip() if isinstance(tool, str) else ""
    return PlannedStep(
        tool=named if named and named.lower() not in ("none", "null") else None,
        purpose=text_of(found, "purpose"),
        parameters=parameters if isinstance(parameters, dict) else {},
    )


def _read(found: dict[str, Any]) -> Strategy:
    steps = found.get("steps")
    given = [read_step(step) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    complexity = str(found.get("complexity")).lower()
    return Strategy(
        approach=text_of(found, "approach"),
        complexity=next((known for known in COMPLEXITIES if known == complexity), "moderate"),
        success_criteria=texts_of(found, "success_criteria", 3),
        steps=tuple(step for step in given if step.tool is not None)[:MOST_STEPS],
    )
