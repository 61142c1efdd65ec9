"""Layered agent's planner: one model call makes a strategy with steps, and the planner checks their tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.core.schemas import simplify_schema, strict_object_schema
from agentlab.flows.ego.prompting import ask_for_object, bounded_text_at, sentences_at
from agentlab.flows.json_replies import text_at
from agentlab.session.session import Session
from agentlab.tools.manual import tool_manual

COMPLEXITIES = ("simple", "moderate", "complex")
MAX_STEPS = 8
Offer = Callable[[Collection[str]], Sequence[Tool]]
"""Returns the tools for a prompt, first of all those with the given names."""
_TEXT = {"type": "string"}


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    tool: str | None
    """Name of the tool; None if no step is left to do."""
    purpose: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    approach: str = ""
    complexity: str = "moderate"
    """One of `COMPLEXITIES`."""
    success_criteria: tuple[str, ...] = ()
    steps: tuple[PlannedStep, ...] = ()

    def outline(self) -> str:
        return "; ".join(f"{step.tool}: {step.purpose}" for step in self.steps)


async def make_plan(
    session: Session, message: str, tools: Sequence[Tool], offer: Offer, earlier: Sequence[str]
) -> Strategy:
    """Return a strategy whose steps name existing tools.

    If a step names an unknown tool, the model is called again with the reason. After the last call such steps are
    dropped, and the coordinator chooses others. If a step names a tool of the session that is not among `tools`, the
    next call offers it. `earlier` lists shortcomings and lessons of earlier attempts.
    """
    lines = list(earlier)
    for attempt in range(1 + session.settings.max_replans):
        data = await ask_for_object(
            session,
            "plan",
            _plan_schema(tools),
            "plan",
            message=message,
            tools=tool_manual(tools),
            earlier="\n\nBefore this:" + "".join(f"\n- {line}" for line in lines) if lines else "",
        )
        strategy = _read_strategy(data)
        names = [tool.spec.name for tool in tools]
        unknown = sorted({step.tool or "?" for step in strategy.steps if step.tool not in names})
        text = f"{strategy.approach} ({strategy.outline()})"
        session.notify("subsystemMessage", text[:500], title=f"plan: {strategy.complexity}")
        if not unknown:
            return strategy
        problem = f"there is no tool {', '.join(unknown)}"
        not_offered = [name for name in unknown if name in session.tools]
        if not_offered and session.settings.tool_ranking == "message":
            tools, problem = offer(not_offered), f"{', '.join(not_offered)} was not offered before"
            names = [tool.spec.name for tool in tools]
        lines.append(f"A plan failed: {problem}; there are: {', '.join(names)}")
        session.decide("plan names unknown tools", ", ".join(unknown), f"attempt {attempt + 1}")
    valid = tuple(step for step in strategy.steps if step.tool in names)
    return replace(strategy, complexity="moderate", steps=valid)


def _plan_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    # A provider that enforces the schema prevents unknown tools; other models can still name them.
    steps = {"anyOf": step_schemas([tool.spec for tool in tools])}
    return strict_object_schema(
        {
            "approach": _TEXT,
            "complexity": {"enum": list(COMPLEXITIES)},
            "success_criteria": {"type": "array", "items": _TEXT, "maxItems": 3},
            "steps": {"type": "array", "items": steps, "maxItems": MAX_STEPS},
        }
    )


def step_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the schema of a step for each tool. Its purpose comes first: small models then choose better tools."""
    return [
        strict_object_schema(
            {"purpose": _TEXT, "tool": {"const": tool.name}, "parameters": simplify_schema(tool.parameters)}
        )
        for tool in tools
    ]


def read_step(data: dict[str, Any]) -> PlannedStep:
    """Return the step in a completion's object; its tool is None if the object names none."""
    tool = text_at(data, "tool")
    parameters = data.get("parameters")
    if isinstance(parameters, str):
        # A text instead of an object: `map_parameters` finds its name in the tool's schema.
        parameters = {"": parameters}
    return PlannedStep(
        tool=None if tool.lower() in ("", "none", "null") else tool,
        purpose=bounded_text_at(data, "purpose"),
        parameters=parameters if isinstance(parameters, dict) else {},
    )


def _read_strategy(data: dict[str, Any]) -> Strategy:
    rows = data.get("steps")
    steps = [read_step(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    complexity = str(data.get("complexity")).lower()
    return Strategy(
        approach=bounded_text_at(data, "approach"),
        complexity=complexity if complexity in COMPLEXITIES else "moderate",
        success_criteria=sentences_at(data, "success_criteria", 3),
        steps=tuple(step for step in steps if step.tool is not None)[:MAX_STEPS],
    )
