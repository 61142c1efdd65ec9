"""The decision to store a message: by the model, or by rules for its wording, which store the user's own words."""

from __future__ import annotations

import json

import pytest

from agentlab.core.events import ModelCall
from agentlab.core.messages import UserTurn
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted, call
from agentlab.tools.memory import save_memory, update_memory
from support.doubles import session_over
from support.two_step import NONE, choose, phases

TELLS, ASKS = "I moved to Rome.", "What time is it?"
EMBEDDED = "local/qwen2.5-coder-0.5b"


async def respond(memory, text, replies, name="scripted", **settings):
    """Play a turn of chatbox on the model `name`; return its session and model."""
    model = Scripted(replies, name=name)
    session = session_over(chatbox, model, tools=(save_memory, update_memory), memory=memory, **settings)
    session.begin_turn(1)
    await chatbox.respond(UserTurn(text=text), session)
    return session, model


@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize(
    ("gate", "name", "text", "is_stored"),
    [
        ("rules", "scripted", TELLS, True),
        ("rules", "scripted", ASKS, False),
        ("model", EMBEDDED, TELLS, False),
        ("auto", EMBEDDED, TELLS, True),
        ("auto", EMBEDDED, ASKS, False),
        ("auto", "openai/gpt-5-mini", TELLS, False),
        ("auto", EMBEDDED, f"{TELLS} " * 100, False),
    ],
)
async def test_rules_store_the_users_own_words_without_a_model_call(memory, protocol, gate, name, text, is_stored):
    replies = [NONE, "Fine."] if protocol == "two_step" else ["Fine.", "OK"]
    replies = replies[1:] if is_stored and protocol == "two_step" else replies
    session, _ = await respond(memory, text, replies, name, protocol=protocol, memory_gate=gate)
    assert [fact.text for fact in await memory.facts()] == ([text] if is_stored else [])
    assert ("memory_write" in phases(session)) == (not is_stored), "otherwise the model is asked"


@pytest.mark.parametrize(
    ("text", "calls"), [("I live in Ulm now, near the river.", 1), ("I live in Ulm, near the river!", 0)]
)
async def test_rules_leave_a_correction_to_the_model_and_nothing_else(memory, text, calls):
    stored = "I live in Ulm, near the river."
    session, _ = await respond(memory, stored, ["Fine."], memory_gate="rules")
    fact = (await memory.facts())[0]
    update = json.dumps({"memory_id": fact.id, "new_content": text})
    session, model = await respond(memory, text, [*[update] * calls, "Fine."], memory_gate="rules")
    writes = [e for e in session.trace.events if isinstance(e, ModelCall) and e.phase == "memory_write"]
    assert len(writes) == calls
    assert [fact.text for fact in await memory.facts()] == [text if calls else stored]
    assert not calls or (stored in model.requests[0].messages[-1].text and text in model.requests[0].messages[-1].text)


@pytest.mark.parametrize("protocol", ["two_step", "native"])
async def test_without_rules_the_model_writes(memory, protocol):
    content = {"content": "The user lives in Rome"}
    two_step = [choose("save_memory"), json.dumps(content), "Fine."]
    replies = two_step if protocol == "two_step" else ["Fine.", call("save_memory", **content)]
    await respond(memory, TELLS, replies, protocol=protocol)
    assert [fact.text for fact in await memory.facts()] == ["The user lives in Rome"]
