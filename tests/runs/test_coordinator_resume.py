"""The coordinator in a later chat: its tool messages, its context lines and its episodes are there again."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.models.scripted import Scripted, call

TIME = datetime(2026, 1, 5, 9, 30)


def talk(folder: Path, replies: list[Any], *texts: str, **settings: Any) -> Scripted:
    """Sends messages in a new chat that is stored in `folder`, and closes it."""
    model = Scripted(replies)
    flow = {"flow": "coordinator", **settings}
    with al.Lab(model=model, embedder="hashing/hashing-64", memory="sqlite", flows=[flow]) as lab:
        chat = lab.chat(documents=(), memory=folder, database=folder / "chat.sqlite", clock=lambda: TIME)
        for text in texts:
            chat.say_sync(text)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


def seen(model: Scripted) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in model.requests[-1].messages[1:]]


def test_a_later_chat_has_tool_messages_and_context_lines(folder):
    talk(folder, [call("get_current_time"), "Half past nine."], "What time is it?")
    model = talk(folder, ["Yes."], "Are you sure?")
    assert [role for role, _ in seen(model)] == ["user", "agent", "tool", "agent", "user"]
    assert seen(model)[0][1].startswith("[CONTEXT: 2026-01-05 09:30")
    assert model.requests[-1].messages[2].tool_calls[0].name == "get_current_time"


@pytest.mark.parametrize("content", ["no JSON", "[]", '{"stored": "x", "messages": []}', '{"loose": 3}'])
def test_unusable_file_leaves_the_history(folder, content):
    talk(folder, [call("get_current_time"), "Half past nine."], "What time is it?")
    (folder / "coordinator.json").write_text(content)
    model = talk(folder, ["Yes."], "Are you sure?")
    assert [text for _, text in seen(model)[:2]] == ["What time is it?", "Half past nine."]


def test_history_of_another_conversation_is_not_used(folder):
    talk(folder, ["Hello, Ann."], "I am Ann.")
    (folder / "chat.jsonl").unlink()
    model = talk(folder, ["Hi."], "Hello")
    assert len(seen(model)) == 1


def test_episodes_wait_for_their_consolidation_across_chats(folder):
    keeps = {"gate": "all", "consolidate_every": 2}
    talk(folder, ["Noted."], "I live in Bern.", **keeps)
    facts = json.dumps({"facts": ["The user lives in Bern with a dog."]})
    model = talk(folder, ["Nice.", facts], "I have a dog.", **keeps)
    prompt = model.requests[-1].messages[0].text
    assert "I live in Bern." in prompt and "I have a dog." in prompt


def test_a_tool_that_does_not_exist_is_one_line(folder):
    with pytest.raises(ConfigError, match=r"tools: unknown tool 'serch_web'.*search_web"):
        talk(folder, ["Hi."], "Hello", tools=["serch_web"])


def test_a_look_up_without_documents_is_no_unknown_tool(folder):
    talk(folder, ["Hi."], "Hello", tools=["lookup_documents"])


@pytest.mark.parametrize(("limit", "is_truncated"), [(400, True), (40_000, False)])
def test_a_result_beyond_the_limit_is_truncated_in_the_history(folder, tmp_path, limit, is_truncated):
    files = tmp_path / "files"
    files.mkdir()
    (files / "long.txt").write_text("word " * 4000)
    model = Scripted([call("read_file", file_path="long.txt"), "Long."])
    flow = {"flow": "coordinator", "max_history_tokens": limit, "trim_chunk_size": 0}
    with al.Lab(model=model, embedder="hashing/hashing-64", memory="none", flows=[flow], files=str(files)) as lab:
        lab.chat(documents=()).say_sync("What does it say?")
    result = model.requests[-1].messages[-1].text
    assert ("characters more)" in result) == is_truncated and len(result) == (833 if is_truncated else 20_000)
