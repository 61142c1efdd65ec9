"""Let the model decide: it may search the documents with a tool, up to a limit, and then answers.

A turn with one search takes two model calls and one embedding call; a turn without takes one model call.
"""

from __future__ import annotations

from agentlab.core.constants import LOOKUP_DOCUMENTS
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows.documents import PROMPTS, DocumentToolSettings, finish_turn, generate_with_tools
from agentlab.session.session import Session

__all__ = ["PROMPTS", "Settings", "respond"]

NEEDS = ("documents or tools",)
TOOLS = (LOOKUP_DOCUMENTS,)
CALLS_PER_TURN = 2.0
Settings = DocumentToolSettings


async def respond(turn: UserTurn, session: Session) -> Reply:
    history = session.load_conversation(session.settings.history)
    return finish_turn(session, turn, await generate_with_tools(session, turn, history))
