"""A chat's conversation on disk: it continues, and files of older versions are named in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.models.scripted import Scripted


def opened(lab: al.Lab, file: Path) -> al.Chat:
    return lab.chat("rag_only", documents=(), database=file)


@pytest.fixture
def lab(own_home):
    with al.Lab(model=Scripted(["two", "three", "four"]), embedder="hashing/hashing-64", flows=["rag_only"]) as made:
        yield made


@pytest.fixture
def file(lab, tmp_path):
    """A conversation of two turns with the replies "two" and "three"."""
    chat = opened(lab, tmp_path / "chat.sqlite")
    chat.say_sync("First")
    chat.say_sync("Second")
    return tmp_path / "chat.sqlite"


def test_conversation_continues_after_a_restart(lab, file, tmp_path):
    assert [path.name for path in tmp_path.glob("chat.*")] == ["chat.jsonl"]
    again = opened(lab, file)
    assert [message.text for message in again.log.messages] == ["First", "two", "Second", "three"]
    assert [turn.reference_answers for turn in again.turns_until(2)] == [["two"], ["three"]]


def test_reset_conversation_does_not_return(lab, file):
    opened(lab, file).reset_sync()
    assert opened(lab, file).turn_rows == []


def test_a_fork_replaces_the_content_of_the_file(lab, file):
    begins_with = opened(lab, file).turns_until(2)[:1]
    fork = lab.chat("rag_only", documents=(), database=file, begins_with=begins_with)
    assert fork.turns_until(1) == begins_with
    fork.say_sync("Instead")
    assert [message.text for message in opened(lab, file).log.messages] == ["First", "two", "Instead", "four"]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("chat.jsonl", '{"stored": []}\n', "chat.jsonl:1: turn"),
        ("chat.jsonl", '{"turn": {"user": "x"}, "stored": [{"role": "robot", "text": ""}]}\n', "chat.jsonl:1: stored"),
    ],
)
def test_unusable_file_is_one_line(lab, tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    with pytest.raises(AgentlabError, match=text):
        opened(lab, tmp_path / "chat.sqlite")


def test_missing_folder_is_reported_before_the_flow_runs(lab, tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        opened(lab, tmp_path / "missing" / "chat.sqlite").say_sync("Hello")
