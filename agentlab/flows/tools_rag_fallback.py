"""Offer tools first. If the model calls none and passages are found, answer again from the passages without tools.

Both paths take two model calls and one embedding call per turn. Without passages the first reply is final.
"""

from __future__ import annotations

from agentlab.core.constants import LOOKUP_DOCUMENTS
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.documents import (
    PROMPTS,
    DocumentToolSettings,
    finish_turn,
    generate_from_passages,
    generate_with_tools,
    retrieve_documents,
    tool_was_called,
)
from agentlab.session.session import Session

__all__ = ["PROMPTS", "Settings", "respond"]

NEEDS = ("documents",)
TOOLS = (LOOKUP_DOCUMENTS,)
CALLS_PER_TURN = 2.0
Settings = DocumentToolSettings


async def respond(turn: UserTurn, session: Session) -> Reply:
    history = session.load_conversation(session.settings.history)
    # Once a tool was called, no fallback follows.
    with session.draft(until=lambda: tool_was_called(session)):
        text = await generate_with_tools(session, turn, history)
    if session.decide("fallback needed", not tool_was_called(session)):
        passages = await retrieve_documents(session, turn, history)
        if session.decide("passages found", bool(passages), "" if passages else "the first reply stands"):
            text = await generate_from_passages(session, turn, history, passages, phase="fallback")
    return finish_turn(session, turn, text)
