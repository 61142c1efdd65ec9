"""Chats with the two-step orchestrator: a memory that leaves and comes back, and who is speaking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.events import Notice
from agentlab.flows import discord
from agentlab.models.scripted import Scripted
from support.two_step_runs import NOTHING_SAVED, Plan, Store, following, saving

CHATBOX = {"flow": "chatbox", "memory_min_score": -1}
"""Similarities of the hashing embedder mean little."""


def chatting(model: Scripted, **spec: Any) -> al.Lab:
    spec = {"embedder": "hashing/hashing-64", "memory": "sqlite", "flows": [CHATBOX], **spec}
    return al.Lab(model=model, **spec)


def prompt_text(model: Scripted) -> str:
    return "\n".join(message.text for message in model.requests[-1].messages)


def unavailable_turns(chat: Any) -> set[int]:
    return {e.turn for e in chat.trace.events if isinstance(e, Notice) and e.name == "memory_unavailable"}


TEA = {"I like tea": Plan((), saving("Ann likes tea")), "What do I like?": Plan(), "And now?": Plan()}


def test_chat_gets_its_memory_when_it_returns(tmp_path, own_home, monkeypatch):
    store, model = Store(monkeypatch, 0), following(TEA)
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        assert chat.say_sync("I like tea").text == "Answer to I like tea"
        assert NOTHING_SAVED in prompt_text(model)
        chat.say_sync("What do I like?")
        assert unavailable_turns(chat) == {0, 1}
        store.come_back()
        chat.say_sync("I like tea")
        assert "Saved to memory. ID: fact_" in prompt_text(model)
        chat.say_sync("What do I like?")
        assert "| Content: Ann likes tea" in prompt_text(model)
        assert unavailable_turns(chat) == {0, 1}


def test_chat_continues_while_its_memory_fails_and_returns(tmp_path, own_home, monkeypatch):
    store, model = Store(monkeypatch), following(TEA)
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("I like tea")
        store.disconnect()
        chat.say_sync("What do I like?")
        assert "| Content:" not in prompt_text(model)
        store.come_back()
        chat.say_sync("And now?")
        assert "| Content: Ann likes tea" in prompt_text(model)
        assert unavailable_turns(chat) == {1}


@pytest.mark.parametrize("role", ["user", "system"])
def test_facts_written_before_a_failure_survive_a_restart(tmp_path, own_home, monkeypatch, role):
    store, model = Store(monkeypatch), following(TEA)
    flows = [{**CHATBOX, "context_in": role}]
    with chatting(model, flows=flows) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("I like tea")
        store.disconnect()
        chat.say_sync("I like tea")
        assert unavailable_turns(chat) == {1}
    store.come_back()
    with chatting(model, flows=flows) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("What do I like?")
        assert prompt_text(model).count("| Content: Ann likes tea") == 1 and not unavailable_turns(chat)
        assert [message.role for message in model.requests[-1].messages] == ["system", "user", role]


@pytest.mark.parametrize(("context_in", "role"), [("user", "user"), ("system", "user"), ("seed", "system")])
def test_only_the_role_of_the_seed_gives_earlier_tool_results_the_system_role(own_home, tmp_path, context_in, role):
    model = following(TEA)
    with chatting(model, flows=[{**CHATBOX, "context_in": context_in}]) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("I like tea")
        chat.say_sync("And now?")
    results = [m.role for m in model.requests[-1].messages if "Saved to memory" in m.text and "Content" not in m.text]
    assert results == [role]


@pytest.mark.parametrize(
    ("speaker", "personality", "text"),
    [
        ({"speaker_id": "7", "speaker_name": "Ann"}, "master", "with Ann (ID 7), who is the one"),
        ({"speaker_id": "8", "speaker_name": "Ann"}, "stranger_2", "with Ann (ID 8), who is not the one"),
        ({"speaker_name": "7"}, "stranger_2", "with 7 (ID unknown), who is not the one"),
        ({}, "stranger_2", "with somebody (ID unknown), who is not the one"),
    ],
)
def test_chat_knows_the_speaker(tmp_path, own_home, speaker, personality, text):
    model = following({"Hello": Plan()})
    flows = [{"flow": "discord", "master_id": "7", "stranger": 2}]
    folder = Path(discord.__file__).parent / "two_step" / "personalities"
    with chatting(model, flows=flows) as lab:
        chat = lab.chat(documents=[])
        chat.say_sync("Hello", **speaker)
        first, _, who, message = model.requests[-1].messages
        assert first.text == (folder / f"{personality}.txt").read_text(encoding="utf-8").strip()
        assert text in who.text
        assert message.text == f"{speaker.get('speaker_name', 'Somebody')} said: Hello"


async def test_say_hands_the_speaker_on_turn_by_turn(tmp_path, own_home):
    model = following({"Hello": Plan()})
    with chatting(model, flows=[{"flow": "discord", "master_id": "7"}]) as lab:
        chat = lab.chat(documents=[])
        await chat.say("Hello", speaker_id="7", speaker_name="Ann")
        await chat.say("Hello", speaker_id="8", speaker_name="Bo")
        first, _, who, *text = model.requests[-1].messages
        assert "polite and helpful" in first.text and "Bo (ID 8), who is not" in who.text
        assert [(m.role, m.name, m.text) for m in text] == [
            ("user", "Ann", "Ann said: Hello"),
            ("agent", None, "Answer to Hello"),
            ("user", "Bo", "Bo said: Hello"),
        ]
