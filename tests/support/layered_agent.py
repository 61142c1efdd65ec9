"""The layered agent over a model that answers each of its functions from a list of its own."""

from __future__ import annotations

import json
from typing import Any

from agentlab.core.events import ModelCall
from agentlab.core.messages import Request, ToolSpec, UserTurn
from agentlab.flows import ego
from agentlab.flows.ego.memory import MEMORY
from agentlab.flows.ego.own_tools import memory_maintenance, reflection
from agentlab.models.scripted import Scripted
from support.doubles import session_over

SEARCH = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class Tool:
    def __init__(self, name: str, *results: Any, parameters: dict[str, Any] | None = None):
        self.spec = ToolSpec(name=name, description=f"does {name}", parameters=parameters or SEARCH)
        self.received: list[dict[str, Any]] = []
        self.results = list(results)

    def run(self, arguments, session):
        self.received.append(arguments)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


def purpose(request: Request) -> str:
    """Return the agent's function that made the request, by its output schema."""
    named = {
        "relevant": "relevance",
        "approach": "plan",
        "step": "step",
        "score": "evaluate",
        "chat": "bubble",
        "lessons": "reflect",
        "tags": "analysis",
        "drop": "maintenance",
    }
    properties = (request.output_schema or {}).get("properties", {})
    return next((name for key, name in named.items() if key in properties), "question")


def plan(*steps: str, complexity: str = "moderate", **parameters: Any) -> str:
    made = [{"tool": step, "purpose": "p", "parameters": parameters or {"query": "oboe"}} for step in steps]
    row = {"approach": "look it up", "complexity": complexity, "success_criteria": ["it is found"], "steps": made}
    return json.dumps(row)


def step(tool: str | None, **parameters: Any) -> str:
    made = {"purpose": "p", "tool": tool, "parameters": parameters or {"query": "oboe"}}
    return json.dumps({"step": made if tool else None})


def judge(score: int, complete: bool = True, confidence: float = 0.9, comment: str = "fine") -> str:
    return json.dumps({"score": score, "complete": complete, "confidence": confidence, "comment": comment})


USUAL = {
    "relevance": '{"relevant": [], "summary": ""}',
    "plan": plan("search", complexity="simple"),
    "step": step(None),
    "evaluate": judge(95),
    "bubble": '{"chat": "It is a woodwind.", "canvas": "# Oboe"}',
    "reflect": '{"insights": [], "lessons": ["Look it up first."], "questions": [], "directives": []}',
    "analysis": '{"summary": "looking up helps", "tags": ["method"]}',
    "maintenance": '{"drop": [], "merged": [], "evaluation": ""}',
    "question": "Forty-two.",
}


def agent(*tools: Any, replies: dict[str, Any] | None = None, **given: Any):
    """A session of the agent whose model answers each function from its own list, the last one for ever."""
    queues = {name: list(r) if isinstance(r, list) else [r] for name, r in {**USUAL, **(replies or {})}.items()}

    def answer(request: Request) -> str:
        queue = queues[purpose(request)]
        return queue.pop(0) if len(queue) > 1 else queue[0]

    model = Scripted([answer], loop=True)
    offered = tools or (Tool("search", "An oboe is a woodwind."),)
    own = [reflection, memory_maintenance]
    # Most tests are about the plan, so every message gets one.
    settings = {"plain_replies": "never", "consistent_canvas": False, **given}
    return session_over(ego, model, tools=[*offered, *own], **settings), model


async def say(session, *texts: str):
    replies = []
    for turn, text in enumerate(texts):
        await session.run_background()
        session.begin_turn(turn)
        replies.append(await ego.respond(UserTurn(text=text), session))
    await session.run_background()
    return replies


def prompts_of(session) -> list[str]:
    calls = sorted((e for e in session.trace.events if isinstance(e, ModelCall)), key=lambda e: e.id)
    return [purpose(call.request) for call in calls]


def prompts(model, name: str) -> list[str]:
    return [request.messages[0].text for request in model.requests if purpose(request) == name]


def entries(session, which: str = "short"):
    return getattr(session.state(MEMORY), which).entries()
