"""A chat's conversation on disk: what older versions kept is read once and taken over, then goes on where it ended."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.models.scripted import Scripted

MESSAGES = [
    (1, None, "user", None, "before the rows"),
    (2, 1, "agent", None, "noted"),
    (3, None, "user", "Ann", "forgotten by a reset"),
    (4, 2, "user", "Ann", "First"),
    (5, 4, "system", None, "Tool clock ran."),
    (6, 5, "agent", None, "one"),
]
"""Number, the one it replies to, role, speaker, text."""


def old_chat(folder: Path) -> Path:
    """A conversation as it was kept in SQLite, with a row of its last turn beside."""
    file = folder / "chat.sqlite"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, reply_to, role, speaker, text, citations)")
        database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, '[]')", MESSAGES)
    database.close()
    (folder / "chat.turns.jsonl").write_text('{"user": "First", "metadata": {"now": "2026-01-01T00:00:00"}}\n')
    return file


def opened(lab: al.Lab, file: Path) -> al.Chat:
    return lab.chat("rag_only", documents=(), database=file)


@pytest.fixture
def lab(own_home):
    with al.Lab(model=Scripted(["two", "three"]), embedder="hashing/hashing-64", flows=["rag_only"]) as made:
        yield made


def test_an_older_chat_is_taken_over_once(lab, tmp_path):
    file = old_chat(tmp_path)
    chat = opened(lab, file)
    assert [path.name for path in tmp_path.glob("chat.*")] == ["chat.jsonl"]
    chat.say_sync("Second")
    again = opened(lab, file)
    texts = ["before the rows", "noted", "First", "Tool clock ran.", "one", "Second", "two"]
    assert [message.text for message in again.told.messages] == texts
    assert [(turn.user, turn.scored) for turn in again.said] == [
        ("before the rows", False),
        ("First", True),
        ("Second", True),
    ]
    assert again.said[1].metadata == {"now": "2026-01-01T00:00:00"}
    assert [turn.reference_answers for turn in again.turns_until(3)] == [["noted"], ["one"], ["two"]]


def test_what_was_reset_does_not_come_back(lab, tmp_path):
    file = old_chat(tmp_path)
    opened(lab, file).reset_sync()
    assert opened(lab, file).said == []


def test_a_fork_takes_the_place_of_what_the_file_held(lab, tmp_path):
    file = old_chat(tmp_path)
    begins_with = opened(lab, file).turns_until(2)[1:]
    fork = lab.chat("rag_only", documents=(), database=file, begins_with=begins_with)
    assert fork.turns_until(1) == begins_with
    fork.say_sync("Instead")
    assert [message.text for message in opened(lab, file).told.messages] == ["First", "one", "Instead", "two"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("chat.sqlite", "no database " * 100, "chat.sqlite: the stored conversation cannot be used"),
        ("chat.jsonl", '{"stored": []}\n', "chat.jsonl:1: turn"),
        ("chat.jsonl", '{"turn": {"user": "x"}, "stored": [{"role": "robot", "text": ""}]}\n', "chat.jsonl:1: stored"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_a_line(lab, tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(AgentlabError, match=told):
        opened(lab, tmp_path / "chat.sqlite")


def test_a_folder_that_is_not_there_is_said_before_the_flow_is_asked(lab, tmp_path):
    with pytest.raises(ConfigError, match="cannot be kept here"):
        opened(lab, tmp_path / "missing" / "chat.sqlite").say_sync("Hello")
