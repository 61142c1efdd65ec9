"""The layered agent's tools for itself: it looks back at what happened, and tidies its long-term memory."""

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
"""Characters of a result or a response that short-term memory keeps."""
NOTHING_LEARNED = "Nothing to learn from this."


@tool(
    name="memoryMaintenance",
    description="Consolidate long-term memory: merge what is said twice, prune what is out of date. When asked to.",
    parameters={},
)
async def memory_maintenance(arguments: dict[str, Any], session: Any) -> str:
    """The layered agent tidies its long-term memory; what it prunes can be found again."""
    done: str = await session.state(MEMORY).maintain(session)
    return done


@tool(description="Look back at what was just said and done, and keep what can be learned from it.", parameters={})
async def reflection(arguments: dict[str, Any], session: Any) -> str:
    """The layered agent looks back at the last exchange; what it learns goes into its long-term memory."""
    return _lines_of(await reflect(session)) or NOTHING_LEARNED


TOOLS = (LOOKUP_DOCUMENTS, "get_current_time", "question", "llmquery", memory_maintenance, reflection)


async def reflect(session: Session, evaluation: str = "") -> dict[str, tuple[str, ...]]:
    """What a look at what happened teaches: insights, lessons, questions and directives, which are kept for good."""
    memory = session.state(MEMORY)
    recent = memory.recent(session)
    known = "\n".join(entry.facts.get("summary", entry.text)[:200] for entry in memory.search_long_term(recent, 5))
    values = {"recent": recent, "known": known or "(nothing)", "evaluation": evaluation}
    found = await ask_for_object(session, "reflection", REFLECTION, "reflect", **values)
    learned = {name: sentences_at(found, name, 3) for name in REFLECTION["required"]}
    if lines := _lines_of(learned):
        memory.note(session, "reflection", "insight", lines[:MAX_NOTE_CHARS])
        await memory.add_long_term(session, "reflection", lines)
    return learned


def _lines_of(learned: dict[str, tuple[str, ...]]) -> str:
    return "\n".join(f"{name}: {text}" for name, texts in learned.items() for text in texts)
