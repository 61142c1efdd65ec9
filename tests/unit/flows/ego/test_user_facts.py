"""Facts from the user reach long-term memory in the user's words and survive a reset."""

from __future__ import annotations

import pytest

from agentlab.core.events import Decision
from support.layered_agent import agent, entries, prompts, say

FACT = "My cat is called Fenchurch."


def long_texts(session) -> list[str]:
    return [entry.text for entry in entries(session, "long") if entry.module == "ego"]


def decisions(session) -> list[tuple[bool | str, str]]:
    events = session.trace.events
    return [
        (event.choice, event.why) for event in events if isinstance(event, Decision) and event.name == "keep message"
    ]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_stated_fact_survives_a_reset(stored):
    session, model = agent(user_facts=stored)
    await say(session, FACT)
    session.forget_history()
    await say(session, "What is my cat called?")
    assert any(FACT in prompt for prompt in prompts(model, "relevance")) == stored
    assert long_texts(session) == ([FACT] if stored else [])
    assert decisions(session) == ([(True, FACT)] if stored else [])


@pytest.mark.parametrize("text", ["What is an oboe?", "Thanks!", "run memory maintenance"])
async def test_questions_courtesy_and_commands_are_not_kept(text):
    session, _ = agent()
    await say(session, text)
    assert long_texts(session) == [] and decisions(session) == []


async def test_the_same_words_are_kept_once():
    session, _ = agent()
    await say(session, FACT, FACT, "My dog is called Ford.")
    assert long_texts(session) == [FACT, "My dog is called Ford."]
    assert [choice for choice, _ in decisions(session)] == [True, False, True]


async def test_a_message_of_this_chat_is_in_a_prompt_once():
    session, model = agent(reflection=False)
    await say(session, FACT, "What is my cat called?")
    assert prompts(model, "relevance")[-1].count(FACT) == 1


async def test_keeping_a_message_asks_no_model():
    counts = []
    for stored in (True, False):
        session, model = agent(user_facts=stored)
        await say(session, FACT)
        counts.append(len(model.requests))
    assert counts[0] == counts[1]
