"""Facts in chats: recall by relevance, the speaker of a fact, and unique ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.models.scripted import Scripted

NONE = '{"tool": null}'
MASTER = {"speaker_id": "master", "speaker_name": "Ann"}
STRANGER = {"speaker_id": "77", "speaker_name": "Bo"}
OF_ANOTHER = "None of it is about the one who asks"


def saving(text: str) -> list[str]:
    return [NONE, json.dumps({"tool": "save_memory"}), json.dumps({"content": text}), "Saved."]


def talk(folder: Path, flow: Any, replies: list[str], *results: tuple[str, dict[str, str]]) -> list[str]:
    """Says things in a chat of its own; gives all texts of the last request, and closes the chat."""
    model = Scripted(replies)
    with al.Lab(model=model, embedder="hashing/hashing-256", memory="sqlite", flows=[flow]) as lab:
        chat = lab.chat(documents=(), memory=folder)
        for text, speaker in results:
            chat.say_sync(text, **speaker)
    return [message.text for message in model.requests[-1].messages]


def facts_in(folder: Path) -> list[Any]:
    with al.Lab(model=Scripted(["-"]), embedder="hashing/hashing-256", memory="sqlite", flows=["chatbox"]) as lab:
        return list(lab.chat(documents=(), memory=folder).facts_sync())


@pytest.mark.parametrize(("least", "recalled"), [(-1, True), (0.99, False)])
def test_only_relevant_facts_are_recalled(tmp_path, least, recalled):
    talk(tmp_path, "chatbox", saving("My sister plays the oboe"), ("My sister plays the oboe", {}))
    flow = {"flow": "chatbox", "memory_min_score": least}
    rendered = talk(tmp_path, flow, [NONE, NONE, "Hm."], ("What is the capital of France?", {}))
    assert ("oboe" in "".join(rendered)) == recalled


@pytest.mark.parametrize(("least", "text"), [(-1, "Content: My sister"), (0.99, "No relevant facts found.")])
def test_the_tool_that_reads_memory_has_the_same_threshold(tmp_path, least, text):
    talk(tmp_path, "chatbox", saving("My sister plays the oboe"), ("My sister plays the oboe", {}))
    flow = {"flow": "chatbox", "memory_min_score": least, "automatic_memory": False, "filter_memory_tools": False}
    replies = [json.dumps({"tool": "fetch_memory"}), '{"query": "capital of France"}', NONE, NONE, "Hm."]
    assert text in "".join(talk(tmp_path, flow, replies, ("What is the capital of France?", {})))


@pytest.mark.parametrize(("speaker", "of_another"), [(MASTER, False), (STRANGER, True)])
def test_channel_names_the_owner_of_a_fact(tmp_path, speaker, of_another):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", {}))
    rendered = "\n".join(talk(tmp_path, "discord", [NONE, "Hm."], ("What tea does the user like?", speaker)))
    assert "Content: The user likes tea" in rendered
    assert (OF_ANOTHER in rendered) == of_another


def test_fact_keeps_its_speaker_in_another_chat(tmp_path):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", STRANGER))
    assert [fact.about for fact in facts_in(tmp_path)] == ["Bo"]
    rendered = "\n".join(talk(tmp_path, "chatbox", [NONE, NONE, "Hm."], ("Which tea does the user like?", {})))
    assert "| Told by: Bo | Content: The user likes tea" in rendered


ABOUT_USER, OF_SEVERAL = "What you remember about the user", "What you remember from the people"


def heading_of(texts: list[str], fact: str) -> str:
    """Return the beginning of the message that lists `fact`."""
    [message] = [text for text in texts if f"Content: {fact}" in text]
    return next(name for name in (ABOUT_USER, OF_ANOTHER, OF_SEVERAL) if name in message)


@pytest.mark.parametrize(
    ("teller", "asker", "heading"),
    [
        (STRANGER, STRANGER, ABOUT_USER),
        (STRANGER, {"speaker_id": "8", "speaker_name": "Cy"}, OF_SEVERAL),
        (STRANGER, MASTER, OF_SEVERAL),
        (STRANGER, {}, OF_SEVERAL),
        (MASTER, MASTER, ABOUT_USER),
        (MASTER, STRANGER, OF_SEVERAL),
        ({}, MASTER, ABOUT_USER),
        ({}, STRANGER, OF_ANOTHER),
    ],
)
def test_a_fact_is_listed_under_its_speaker(tmp_path, teller, asker, heading):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", teller))
    texts = talk(tmp_path, "discord", [NONE, "Hm."], ("What tea does the user like?", asker))
    assert heading_of(texts, "The user likes tea") == heading


@pytest.mark.parametrize(("flow", "heading"), [("chatbox", OF_SEVERAL), ("discord", OF_ANOTHER)])
def test_facts_of_two_speakers_have_two_headings(tmp_path, flow, heading):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", STRANGER))
    talk(tmp_path, "chatbox", saving("The user likes cold green tea"), ("Cold green tea for me", {}))
    replies = [NONE, NONE, "Hm."] if flow == "chatbox" else [NONE, "Hm."]
    texts = talk(tmp_path, flow, replies, ("What tea does the user like?", STRANGER))
    assert heading_of(texts, "The user likes tea") == ABOUT_USER
    assert heading_of(texts, "The user likes cold green tea") == (ABOUT_USER if flow == "chatbox" else heading)


@pytest.mark.parametrize(("asker", "heading"), [(MASTER, ABOUT_USER), (STRANGER, OF_ANOTHER)])
def test_all_facts_can_be_listed_as_the_owners(tmp_path, asker, heading):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", STRANGER))
    flow = {"flow": "discord", "facts_by": "owner"}
    texts = talk(tmp_path, flow, [NONE, "Hm."], ("What tea does the user like?", asker))
    assert heading_of(texts, "The user likes tea") == heading


def test_unknown_speaker_is_not_named(tmp_path):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", {}))
    rendered = "\n".join(talk(tmp_path, "chatbox", [NONE, NONE, "Hm."], ("Which tea does the user like?", {})))
    assert "Content: The user likes tea" in rendered and "Told by" not in rendered


def test_an_id_of_a_deleted_fact_is_never_used_again(tmp_path):
    talk(tmp_path, "chatbox", saving("The user likes tea"), ("I like tea", {}))
    [tea] = facts_in(tmp_path)
    update = json.dumps({"memory_id": tea.id, "new_content": "The user likes coffee"})
    coffee = [NONE, json.dumps({"tool": "update_memory"}), update, "Noted."]
    talk(tmp_path, "chatbox", coffee, ("Coffee, now", {}))
    talk(tmp_path, "chatbox", saving("The user owns a boat"), ("I own a boat", {}))
    now = facts_in(tmp_path)
    assert [fact.text for fact in now] == ["The user likes coffee", "The user owns a boat"]
    assert len({tea.id, *(fact.id for fact in now)}) == 3
