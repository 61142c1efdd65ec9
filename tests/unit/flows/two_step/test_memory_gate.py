"""The decision to store a message: by the model, or by rules for its wording, which store the user's own words."""

from __future__ import annotations

import json

import pytest

from agentlab.core.messages import UserTurn
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted, call
from agentlab.tools.memory import save_memory, update_memory
from support.doubles import session_over
from support.two_step import NONE, choose, decided, phases

FACT, QUESTION = "I moved to Rome.", "What time is it?"
EMBEDDED = "local/qwen2.5-coder-0.5b"


async def respond(memory, text, replies, name="scripted", speaker="", tools=(save_memory, update_memory), **settings):
    """Play a turn of chatbox with `speaker` on the model `name`; return its session and model."""
    model = Scripted(replies, name=name)
    session = session_over(chatbox, model, tools=tools, memory=memory, **settings)
    session.begin_turn(1, speaker)
    await chatbox.respond(UserTurn(text=text), session)
    return session, model


@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize(
    ("gate", "name", "text", "decides"),
    [
        ("rules", "scripted", FACT, "stored"),
        ("rules", "scripted", QUESTION, "not stored"),
        ("rules", "scripted", "Thanks!", "not stored"),
        ("model", EMBEDDED, FACT, "the model"),
        ("model", EMBEDDED, QUESTION, "the model"),
        ("auto", EMBEDDED, FACT, "stored"),
        ("auto", EMBEDDED, QUESTION, "not stored"),
        ("auto", EMBEDDED, f"{QUESTION} " * 100, "not stored"),
        ("auto", "openai/gpt-5-mini", QUESTION, "the model"),
        ("auto", EMBEDDED, f"{FACT} " * 100, "the model"),
    ],
)
async def test_rules_decide_without_a_model_call(memory, protocol, gate, name, text, decides):
    by_model = decides == "the model"
    replies = ["Fine.", "OK"] if protocol == "native" else [NONE, "Fine."] if by_model else ["Fine."]
    session, model = await respond(memory, text, replies, name, protocol=protocol, memory_gate=gate)
    assert "save_memory" not in str(model.requests[-1].messages) or by_model, "no result of a call that it did not make"
    assert [fact.text for fact in await memory.facts()] == ([text] if decides == "stored" else [])
    assert ("memory_write" in phases(session)) == by_model
    assert (("keep message", False) in decided(session)) == (decides == "not stored")


STORED, MOVED = "I live in Ulm, near the river.", "I live in Bonn now, not in Ulm."


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("I live in Ulm, but near the river.", [f"I live in Ulm, but near the river. (before: {STORED})"]),
        ("I live in Ulm, near the river!", [STORED]),
        (MOVED, [f"{MOVED} (before: {STORED})"]),
        ("I live in Bonn, Ann in Ulm.", [STORED, "I live in Bonn, Ann in Ulm."]),
        ("My flute has a new case.", [STORED, "My flute has a new case."]),
    ],
)
async def test_rules_write_a_correction_before_the_old_words(memory, text, stored):
    await respond(memory, STORED, ["Fine."], memory_gate="rules")
    session, _ = await respond(memory, text, ["Fine."], memory_gate="rules")
    assert [fact.text for fact in await memory.facts()] == stored
    assert phases(session) == ["answer"], "no model call writes"


async def test_without_a_tool_that_updates_a_correction_is_saved_in_the_users_own_words(memory):
    await respond(memory, STORED, ["Fine."], memory_gate="rules")
    session, _ = await respond(memory, MOVED, ["Fine."], memory_gate="rules", tools=(save_memory,))
    assert MOVED in [fact.text for fact in await memory.facts()] and phases(session) == ["answer"]


async def test_a_second_correction_drops_the_oldest_words_and_a_repetition_changes_nothing(memory):
    again = "I live in Rome now, not in Bonn"
    for text in (STORED, MOVED, again, f"{again}!"):
        await respond(memory, text, ["Fine."], memory_gate="rules")
    [fact] = await memory.facts()
    assert fact.text == f"{again} (before: {MOVED})"


async def test_a_change_corrects_neither_facts_of_others_nor_without_the_setting(memory):
    await respond(memory, STORED, ["Fine."], memory_gate="rules")
    await respond(memory, MOVED, ["Fine."], memory_gate="rules", change_min_score=1)
    assert [fact.text for fact in await memory.facts()] == [STORED, MOVED]
    await respond(memory, "I live in Rome now, not in Ulm.", ["Fine."], memory_gate="rules", speaker="Bo")
    assert [fact.about for fact in await memory.facts()] == ["", "", "Bo"]


@pytest.mark.parametrize("protocol", ["two_step", "native"])
async def test_without_rules_the_model_writes(memory, protocol):
    content = {"content": "The user lives in Rome"}
    two_step = [choose("save_memory"), json.dumps(content), "Fine."]
    replies = two_step if protocol == "two_step" else ["Fine.", call("save_memory", **content)]
    await respond(memory, FACT, replies, protocol=protocol)
    assert [fact.text for fact in await memory.facts()] == ["The user lives in Rome"]
