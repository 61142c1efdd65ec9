"""Retrieve passages first, then answer in one model call with the passages beside the question and without tools.

A turn takes one embedding call, one search and one model call.
"""

from __future__ import annotations

from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.documents import PROMPTS, DocumentSettings, finish_turn, generate_from_passages, retrieve_documents
from agentlab.session.session import Session

__all__ = ["PROMPTS", "Settings", "respond"]

NEEDS = ("documents",)
TOOLS = ()
CALLS_PER_TURN = 1.0
Settings = DocumentSettings


async def respond(turn: UserTurn, session: Session) -> Reply:
    history = session.load_conversation(session.settings.history)
    passages = await retrieve_documents(session, turn, history)
    return finish_turn(session, turn, await generate_from_passages(session, turn, history, passages))
