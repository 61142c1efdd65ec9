"""Events of a turn have the described names and a speaker."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ServerFault
from agentlab.core.events import Notice
from agentlab.core.messages import UserTurn
from agentlab.flows import ego
from support.layered_agent import agent, say


async def test_events_have_their_names_and_a_speaker():
    session, _ = agent()
    await say(session, "What is an oboe?")
    notices = [e for e in session.trace.events if isinstance(e, Notice)]
    assert {e.name for e in notices} == {
        "subsystemMessage",
        "systemStatusMessage",
        "debugResponse",
        "bubble",
        "assistantResponse",
    }
    titles = {e.data["title"] for e in notices}
    assert {
        "LLM response: plan",
        "plan: simple",
        "next step: search",
        "tool search: ran",
        "LLM response: evaluate_step",
        "LLM response: bubble",
        "tool reflection: ran",
    } <= titles


async def test_a_model_that_fails_is_an_error_event():
    session, _ = agent(replies={"plan": ServerFault("down")})
    session.begin_turn(0)
    with pytest.raises(ServerFault):
        await ego.respond(UserTurn(text="Hello"), session)
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [(e.data["title"], e.text) for e in errors] == [("LLM error: plan", "ServerFault: down")]
