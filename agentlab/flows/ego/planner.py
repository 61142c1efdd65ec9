"""The layered agent's planner: one call yields strategy and steps, whose tools are checked against those there are."""

from __future__ import annotations

from collections.abc import Sequence
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
_TEXT = {"type": "string"}


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    tool: str | None
    """None: nothing more is to be done."""
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


async def make_plan(session: Session, message: str, tools: Sequence[Tool], earlier: Sequence[str]) -> Strategy:
    """A strategy whose steps name tools that exist; asked for anew, with the reason, while they do not.

    `earlier`: what went wrong before, and what was learned from it. After the last attempt the steps nobody can carry
    out are left out, and what is to be done in their place is found on the way.
    """
    names = [tool.spec.name for tool in tools]
    lines = list(earlier)
    # A model that is bound to it can name no tool that does not exist; others can, and are told.
    steps = {"anyOf": step_schemas([tool.spec for tool in tools])}
    schema = strict_object_schema(
        {
            "approach": _TEXT,
            "complexity": {"enum": list(COMPLEXITIES)},
            "success_criteria": {"type": "array", "items": _TEXT, "maxItems": 3},
            "steps": {"type": "array", "items": steps, "maxItems": MAX_STEPS},
        }
    )
    for attempt in range(1 + session.settings.max_replans):
        found = await ask_for_object(
            session,
            "plan",
            schema,
            "plan",
            message=message,
            tools=tool_manual(tools),
            earlier="\n\nBefore this:" + "".join(f"\n- {line}" for line in lines) if lines else "",
        )
        strategy = _strategy_in(found)
        unknown = sorted({step.tool or "?" for step in strategy.steps if step.tool not in names})
        text = f"{strategy.approach} ({strategy.outline()})"
        session.notify("subsystemMessage", text[:500], title=f"plan: {strategy.complexity}")
        if not unknown:
            return strategy
        lines.append(f"A plan failed: there is no tool {', '.join(unknown)}; there are: {', '.join(names)}")
        session.decide("plan names unknown tools", ", ".join(unknown), f"attempt {attempt + 1}")
    known = tuple(step for step in strategy.steps if step.tool in names)
    return replace(strategy, complexity="moderate", steps=known)


def step_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Each tool with its own parameters. The purpose comes first: a small model chooses better once it has said it."""
    return [
        strict_object_schema(
            {"purpose": _TEXT, "tool": {"const": tool.name}, "parameters": simplify_schema(tool.parameters)}
        )
        for tool in tools
    ]


def read_step(found: dict[str, Any]) -> PlannedStep:
    """A step as a model wrote it; without a tool where it names none."""
    tool = text_at(found, "tool")
    parameters = found.get("parameters")
    if isinstance(parameters, str):
        # One text in place of an object: which parameter it is, the tool's schema knows.
        parameters = {"": parameters}
    return PlannedStep(
        tool=None if tool.lower() in ("", "none", "null") else tool,
        purpose=bounded_text_at(found, "purpose"),
        parameters=parameters if isinstance(parameters, dict) else {},
    )


def _strategy_in(found: dict[str, Any]) -> Strategy:
    steps = found.get("steps")
    written = [read_step(step) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    complexity = str(found.get("complexity")).lower()
    return Strategy(
        approach=bounded_text_at(found, "approach"),
        complexity=complexity if complexity in COMPLEXITIES else "moderate",
        success_criteria=sentences_at(found, "success_criteria", 3),
        steps=tuple(step for step in written if step.tool is not None)[:MAX_STEPS],
    )
