"""A text near a stored fact: a correction becomes an update, a repetition is stored once, facts of others stay."""

from __future__ import annotations

import json

import pytest

from agentlab.core.events import MemoryOp, ToolRun
from agentlab.flows import chatbox
from agentlab.models.scripted import call
from agentlab.tools.memory import save_memory, update_memory
from support.two_step import ANN, FIRST_FACT, choose, decided, phases, setup

STORED = "The user is allergic to peanuts"
CORRECTED = "The user is not allergic to peanuts"
UPDATE = json.dumps({"memory_id": FIRST_FACT, "new_content": CORRECTED})


def saving(text: str) -> list[str]:
    return [choose("save_memory"), json.dumps({"content": text})]


async def run(memory, replies, stored=STORED, speaker="", **settings):
    """Play a turn of chatbox after `speaker` stored the fact `stored`; return the session and the model."""
    session, model = setup(chatbox, replies, save_memory, update_memory, memory=memory, **settings)
    session.begin_turn(0, speaker)
    await session.remember(stored)
    session.begin_turn(1)
    await chatbox.respond(ANN, session)
    return session, model


async def texts_in(memory) -> list[str]:
    return [fact.text for fact in await memory.facts()]


@pytest.mark.parametrize(
    ("stored", "new_text"),
    [
        (STORED, CORRECTED),
        ("My flight leaves on 3 May at 7:40", "My flight leaves on 3 May at 17:40"),
        ("It is -5 degrees in my cellar", "It is 5 degrees in my cellar"),
        ("Ana vive en la calle Mayor de Sevilla", "Ana vive en la calle Mayor de Valencia"),
    ],
)
async def test_a_saved_correction_becomes_an_update(memory, stored, new_text):
    update = json.dumps({"memory_id": FIRST_FACT, "new_content": new_text})
    session, model = await run(memory, [*saving(new_text), update, "Noted."], stored)
    assert await texts_in(memory) == [new_text]
    arguments = model.requests[2].messages
    assert "the tool update_memory" in arguments[0].text
    assert f"ID: {FIRST_FACT} | Content: {stored} New: {new_text}" in arguments[-1].text, "the model sees both facts"
    save, written = (event for event in session.trace.events if isinstance(event, ToolRun))
    assert save.error and not written.error, "a refused text is a failed operation"
    assert ("memory attempt failed", "1") in decided(session)
    writes = [(e.op, e.written) for e in session.trace.events if isinstance(e, MemoryOp) and e.turn == 1]
    assert writes == [("recall", False), ("remember", False), ("revise", True)]


async def test_the_model_corrects_a_fact_by_native_calls(memory):
    replies = ["Noted.", call("save_memory", content=CORRECTED)]
    replies += [call("update_memory", memory_id=FIRST_FACT, new_content=CORRECTED)]
    _, model = await run(memory, replies, protocol="native")
    assert await texts_in(memory) == [CORRECTED]
    result = model.requests[2].messages[-1]
    assert result.role == "tool" and STORED in result.text and CORRECTED in result.text


@pytest.mark.parametrize("new_text", [STORED, f"{STORED.upper()}!", f" {STORED}. "])
async def test_the_same_words_are_stored_once_and_end_the_step(memory, new_text):
    session, _ = await run(memory, [*saving(new_text), "Noted."])
    assert await texts_in(memory) == [STORED] and phases(session) == ["memory_write"] * 2 + ["answer"]
    assert ("memory attempt failed", "1") not in decided(session)


async def test_without_the_setting_a_near_text_counts_as_stored(memory):
    session, _ = await run(memory, [*saving(CORRECTED), "Noted."], near_min_score=None)
    assert await texts_in(memory) == [STORED] and phases(session) == ["memory_write"] * 2 + ["answer"]


async def test_a_text_below_the_threshold_is_stored_beside_the_fact(memory):
    await run(memory, [*saving(CORRECTED), "Noted."], near_min_score=0.99)
    assert await texts_in(memory) == [STORED, CORRECTED]


async def test_a_fact_of_another_person_is_neither_duplicate_nor_corrected(memory):
    await run(memory, [*saving(STORED), "Noted."], speaker="Bo")
    assert [(fact.about, fact.text) for fact in await memory.facts()] == [("Bo", STORED), ("", STORED)]


async def test_a_model_that_names_no_stored_fact_changes_nothing(memory):
    wrong = json.dumps({"memory_id": "fact_9", "new_content": CORRECTED})
    session, _ = await run(memory, [*saving(CORRECTED), wrong, wrong, "Noted."])
    assert await texts_in(memory) == [STORED]
    assert [choice for name, choice in decided(session) if name == "memory attempt failed"] == ["1", "2", "3"]
