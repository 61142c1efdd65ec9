"""The decision that a message holds something to store: the model's, or that of rules for its wording."""

from __future__ import annotations

from datetime import datetime

import pytest

from agentlab.core.messages import UserTurn
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted, call
from agentlab.tools.memory import save_memory, update_memory
from support.doubles import session_over
from support.two_step import NONE, decided

TELLS, ASKS = "I moved to Rome.", "What time is it?"
NOW = datetime(2026, 1, 1)
EMBEDDED = "local/qwen2.5-coder-0.5b"


async def respond(memory, text, replies, name="scripted", **settings):
    """Play a turn of chatbox on the model `name`; return the session and its first request."""
    model = Scripted(replies, name=name)
    session = session_over(chatbox, model, tools=(save_memory, update_memory), memory=memory, **settings)
    await chatbox.respond(UserTurn(text=text), session)
    return session, model


@pytest.mark.parametrize(
    ("gate", "name", "text", "may_decline"),
    [
        ("rules", "scripted", TELLS, False),
        ("rules", "scripted", ASKS, True),
        ("model", EMBEDDED, TELLS, True),
        ("auto", EMBEDDED, TELLS, False),
        ("auto", EMBEDDED, ASKS, True),
        ("auto", "openai/gpt-5-mini", TELLS, True),
    ],
)
async def test_rules_take_the_choice_of_nothing_away_from_a_model(memory, gate, name, text, may_decline):
    session, model = await respond(memory, text, [NONE, "Fine."], name, memory_gate=gate)
    offered = model.requests[0].output_schema["properties"]["tool"]["enum"]
    assert (None in offered) == may_decline and "save_memory" in offered
    assert decided(session)[-1] == ("memory operation", "none"), "a model that ignores the schema stores nothing"


@pytest.mark.parametrize("known", [True, False])
async def test_a_model_that_must_write_replaces_only_facts_that_it_sees(memory, known):
    if known:
        await memory.add(TELLS, (await memory.embedder.embed([TELLS]))[0], created=NOW, new_id=lambda: "fact_1")
    _, model = await respond(memory, TELLS, [NONE, "Fine."], memory_gate="rules")
    assert ("update_memory" in model.requests[0].output_schema["properties"]["tool"]["enum"]) == known


@pytest.mark.parametrize(("text", "choice"), [(TELLS, "required"), (ASKS, "auto")])
async def test_native_calls_follow_the_rules(memory, text, choice):
    replies = ["Fine.", call("save_memory", content="The user lives in Rome")]
    _, model = await respond(memory, text, replies, protocol="native", memory_gate="rules")
    assert model.requests[1].tool_choice == choice
    assert [fact.text for fact in await memory.facts()] == ["The user lives in Rome"]
