"""The model decides: it may search the documents with a tool, as often as it likes up to a limit, and then answers.

Two model calls and one embedding call a turn where it searches once; one model call and none where it does not.
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
    text = await generate_with_tools(session, turn, history)
    return finish_turn(session, turn, text)
