"""Layered agent's own tools: reflection and maintenance of long-term memory."""

from __future__ import annotations

from typing import Any

from agentlab.core.constants import LOOKUP_DOCUMENTS
from agentlab.core.schemas import strict_object_schema
from agentlab.flows.ego.memory import MEMORY
from agentlab.flows.ego.prompting import ask_for_object, sentences_at
from agentlab.session.session import Session
from agentlab.tools import tool

_LINES = {"type": "array", "items": {"type": "string"}, "maxItems": 3}
REFLECTION = strict_object_schema(dict.fromkeys(("insights", "lessons", "questions", "directives"), _LINES))
MAX_NOTE_CHARS = 2_000
"""Length to which short-term memory truncates a result or a reflection."""
NOTHING_LEARNED = "Nothing to learn from this."


@tool(
    name="memoryMaintenance",
    description="Consolidate long-term memory: merge what is said twice, prune what is out of date. When asked to.",
    parameters={},
)
async def memory_maintenance(arguments: dict[str, Any], session: Any) -> str:
    """Consolidate the layered agent's long-term memory and return a report; pruned entries stay in a file."""
    report: str = await session.state(MEMORY).maintain(session)
    return report


@tool(description="Look back at what was just said and done, and keep what can be learned from it.", parameters={})
async def reflection(arguments: dict[str, Any], session: Any) -> str:
    """Reflect on the last exchange and return the lessons, which go into the layered agent's long-term memory."""
    return _lines_of(await reflect(session)) or NOTHING_LEARNED


TOOLS = (LOOKUP_DOCUMENTS, "get_current_time", "question", "llmquery", memory_maintenance, reflection)


async def reflect(session: Session, evaluation: str = "") -> dict[str, tuple[str, ...]]:
    """Return insights, lessons, questions and directives about recent events, and store them in long-term memory."""
    memory = session.state(MEMORY)
    recent = memory.recent(session)
    stored = "\n".join(entry.facts.get("summary", entry.text)[:200] for entry in memory.search_long_term(recent, 5))
    values = {"recent": recent, "known": stored or "(nothing)", "evaluation": evaluation}
    data = await ask_for_object(session, "reflection", REFLECTION, "reflect", **values)
    learned = {name: sentences_at(data, name, 3) for name in REFLECTION["required"]}
    if lines := _lines_of(learned):
        memory.note(session, "reflection", "insight", lines[:MAX_NOTE_CHARS])
        await memory.add_long_term(session, "reflection", lines)
    return learned


def _lines_of(learned: dict[str, tuple[str, ...]]) -> str:
    return "\n".join(f"{name}: {text}" for name, texts in learned.items() for text in texts)
