"""The folder of the file tools: a chat edits it in place, each conversation of a run gets a copy, no path leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError
from agentlab.models.scripted import Scripted

NONE = '{"tool": null}'


def uses(tool: str, **arguments: str) -> list[str]:
    return [json.dumps({"tool": tool}), json.dumps(arguments), NONE, "Done."]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "list.txt").write_text("milk")
    (tmp_path / "secret.txt").write_text("the code is 4711")
    return folder


def lab(replies: list[str], **spec: object) -> al.Lab:
    return al.Lab(model=Scripted(replies, loop=True), embedder="hashing/hashing-64", memory="none", **spec)


def prompt_text(model: object) -> str:
    return "\n".join(message.text for request in model.requests for message in request.messages)


def test_a_chat_works_in_the_folder_and_leaves_it_there(files):
    with lab(uses("write_file", file_path="new.txt", content="bread"), flows=["chatbox"], files=str(files)) as opened:
        opened.chat(documents=()).say_sync("Write it down")
    assert (files / "new.txt").read_text() == "bread" and (files / "list.txt").read_text() == "milk"


def test_a_run_works_in_a_copy(files, tmp_path):
    (tmp_path / "set").mkdir()
    lines = [json.dumps({"id": f"c{n}", "turns": [{"user": "Write it down"}]}) for n in range(2)]
    (tmp_path / "set" / "conversations.jsonl").write_text("\n".join(lines))
    writes = uses("write_file", file_path="list.txt", content="bread")
    with lab(writes, flows=["chatbox"], files=str(files), datasets=[str(tmp_path / "set")]) as opened:
        run = opened.run_sync(out=tmp_path / "run")
    assert list(run.turns["reply"]) == ["Done.", "Done."]
    assert (files / "list.txt").read_text() == "milk"


@pytest.mark.parametrize(("path", "text"), [("list.txt", "milk"), ("../secret.txt", "must not contain '..'")])
def test_only_the_data_folder_is_read(files, path, text):
    model = Scripted(uses("read_file", file_path=path))
    with al.Lab(
        model=model, embedder="hashing/hashing-64", memory="none", flows=["chatbox"], files=str(files)
    ) as opened:
        opened.chat(documents=()).say_sync("Read it")
    assert text in prompt_text(model) and "4711" not in prompt_text(model)


def test_a_link_out_of_the_folder_is_not_followed(files):
    (files / "link.txt").symlink_to(files.parent / "secret.txt")
    model = Scripted(uses("read_file", file_path="link.txt"))
    with al.Lab(
        model=model, embedder="hashing/hashing-64", memory="none", flows=["chatbox"], files=str(files)
    ) as opened:
        opened.chat(documents=()).say_sync("Read it")
    assert "is outside the workspace" in prompt_text(model) and "4711" not in prompt_text(model)


def test_the_environment_names_it_too_and_a_spec_wins(files, monkeypatch):
    monkeypatch.setenv("AGENTLAB_FILES", str(files))
    with lab(["-"], flows=["chatbox"]) as opened:
        assert opened.bench.spec.files == str(files)
    with lab(["-"], flows=["chatbox"], files=None) as opened:
        assert opened.bench.spec.files is None


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"files: there is no folder .*nowhere; make it, or name another"):
        lab(["-"], flows=["chatbox"], files=str(tmp_path / "nowhere"))


def test_a_chat_in_the_terminal_takes_it_as_a_flag(files, tmp_path, monkeypatch, own_home):
    monkeypatch.chdir(tmp_path)
    Path("replies.yaml").write_text(json.dumps({"replies": uses("write_file", file_path="new.txt", content="bread")}))
    lines = iter(["Write it down", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(lines))
    given = ["--model", "scripted/replies.yaml", "--memory", "kept", "--files", str(files)]
    sets = ["--set", "embedder=hashing/hashing-64", "--set", "memory=none"]
    assert main(["chat", "chatbox", *given, *sets]) == 0
    assert (files / "new.txt").read_text() == "bread"
