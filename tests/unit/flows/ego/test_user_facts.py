"""Facts from the user reach long-term memory in the user's words and survive a reset."""

from __future__ import annotations

import pytest

from agentlab.core.events import Decision
from support.layered_agent import agent, entries, prompts, say

TOLD = "My cat is called Fenchurch."


def long_texts(session) -> list[str]:
    return [entry.text for entry in entries(session, "long") if entry.module == "ego"]


def decisions(session) -> list[tuple[bool | str, str]]:
    events = session.trace.events
    return [
        (event.choice, event.why) for event in events if isinstance(event, Decision) and event.name == "keep message"
    ]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_told_fact_survives_a_reset(kept):
    session, model = agent(user_facts=kept)
    await say(session, TOLD)
    session.forget_history()
    await say(session, "What is my cat called?")
    assert any(TOLD in prompt for prompt in prompts(model, "relevance")) == kept
    assert long_texts(session) == ([TOLD] if kept else [])
    assert decisions(session) == ([(True, TOLD)] if kept else [])


@pytest.mark.parametrize("text", ["What is an oboe?", "Thanks!", "run memory maintenance"])
async def test_questions_courtesy_and_commands_are_not_kept(text):
    session, _ = agent()
    await say(session, text)
    assert long_texts(session) == [] and decisions(session) == []


async def test_the_same_words_are_kept_once():
    session, _ = agent()
    await say(session, TOLD, TOLD, "My dog is called Ford.")
    assert long_texts(session) == [TOLD, "My dog is called Ford."]
    assert [choice for choice, _ in decisions(session)] == [True, False, True]


async def test_a_message_of_this_chat_is_in_a_prompt_once():
    session, model = agent(reflection=False)
    await say(session, TOLD, "What is my cat called?")
    assert prompts(model, "relevance")[-1].count(TOLD) == 1


async def test_keeping_a_message_asks_no_model():
    counts = []
    for kept in (True, False):
        session, model = agent(user_facts=kept)
        await say(session, TOLD)
        counts.append(len(model.requests))
    assert counts[0] == counts[1]
