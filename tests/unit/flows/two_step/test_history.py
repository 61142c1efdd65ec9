"""History of earlier turns in the next prompt."""

from __future__ import annotations

import pytest

from agentlab.core.messages import UserTurn
from agentlab.flows import chatbox
from agentlab.models.scripted import call
from support.two_step import ANN, MASTER, NONE, choose, clock, setup, texts


async def test_next_turn_sees_messages_and_actions():
    replies = [choose("get_current_time"), "{}", NONE, "Noon.", NONE, "Twelve.", NONE, "Hi."]
    session, model = setup(chatbox, replies, clock())
    await chatbox.respond(ANN, session)
    session.begin_turn(1)
    await chatbox.respond(UserTurn(text="In words?"), session)
    assert [role for role, _ in texts(model.requests[-1])] == ["system", "user", "user", "agent", "user"]
    session.forget_history()
    session.begin_turn(2)
    await chatbox.respond(UserTurn(text="Hello"), session)
    assert texts(model.requests[-1]) == [("system", MASTER), ("user", "Hello")]
    assert len(session.load_conversation()) == 2, "and the new chain begins there"


@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize(
    ("history", "seen"), [(0, []), (2, []), (3, [ANN.text, "Tool get_current_time ran.", "Noon."])]
)
async def test_history_starts_at_a_user_message(history, seen, protocol):
    first = [choose("get_current_time"), "{}", NONE] if protocol == "two_step" else [call("get_current_time")]
    last = [NONE] if protocol == "two_step" else []
    session, model = setup(chatbox, [*first, "Noon.", *last, "Twelve."], clock(), protocol=protocol, history=history)
    await chatbox.respond(ANN, session)
    session.begin_turn(1)
    await chatbox.respond(UserTurn(text="In words?"), session)
    requests = model.requests[len(first) + 1 :]
    assert len(requests) == len(last) + 1
    for request in requests:
        _, *earlier, lines = [text for _, text in texts(request)]
        assert [text.partition(" Its")[0] for text in earlier] == seen and lines == "In words?"
