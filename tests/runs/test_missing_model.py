"""An unavailable model ends a run, a fork, a judge and a chat in one line, and no reply is invented."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.cli.parser import main

NO_KEY = "agentlab: openai needs a key: set OPENAI_API_KEY"
GIVEN = ["--set", "embedder=hashing/hashing-64", "--recordings", "rec", "--flow", "rag_only"]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path, capsys: pytest.CaptureFixture[str]):
    """A recorded run of two turns in the folder `run`."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    Path("set").mkdir()
    turns = [{"user": f"How wide is it, {n}?", "reference_answers": ["7 m"]} for n in range(2)]
    Path("set/conversations.jsonl").write_text(json.dumps({"id": "a", "turns": turns}))
    Path("set/corpus.jsonl").write_text(json.dumps({"doc_id": "d", "title": "D", "text": "It is 7 m wide."}))
    Path("replies.yaml").write_text("loop: true\nreplies: [7 m]\n")
    model = ["--model", "scripted/replies.yaml", "--mode", "record", "--out", "run"]
    assert main(["run", "--dataset", "set", *model, *GIVEN]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["fork", "run", "--turn", "1", "--set", "model=openai/my-model"], NO_KEY),
        (["fork", "run", "--turn", "1", "--set", "model=scripted/none.yaml"], "agentlab: cannot read the script none"),
        (["fork", "run", "--turn", "1", "--set", "model=local/nobody"], "agentlab: unknown embedded model 'nobody'"),
        (["run", "--dataset", "set", "--model", "openai/my-model", "--mode", "auto", *GIVEN], NO_KEY),
        (["judge", "run", "--model", "openai/my-model", "--recordings", "rec"], NO_KEY),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line_and_not_a_failed_turn_each(recorded, capsys, command, text):
    assert main(command) == 1
    printed = capsys.readouterr()
    (line,) = [line for line in printed.err.splitlines() if line.startswith("agentlab: ")]
    assert line.startswith(text)
    assert "compared with" not in printed.out and "FAILED" not in printed.out and "failed" not in printed.out


def test_complete_recording_needs_no_key(recorded, capsys):
    """The fork changes nothing, so the model is not opened at all."""
    Path("replies.yaml").unlink()
    assert main(["fork", "run", "--turn", "1"]) == 0
    assert " 0 new" in capsys.readouterr().out


def test_unavailable_model_is_refused_at_once_and_the_chat_keeps_its_own(typed, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    screen = typed("rag_only", ["/model openai/my-model", "How wide?", "/model"], ["7 m"])
    assert "openai needs a key" in screen and "rag_only on openai/my-model" not in screen
    assert "7 m" in screen.splitlines() and "scripted/replies.yaml" in screen.splitlines()


def test_a_mistyped_data_folder_is_one_line_and_is_not_made(typed, capsys):
    with pytest.raises(AssertionError):
        typed("ego", ["Hello"], ["x"], "--data", "my-agnet")
    printed = capsys.readouterr().err
    assert printed == "agentlab: flow 'ego': data: there is no folder my-agnet; make it, or name another\n"
    assert not Path("my-agnet").exists()


def test_new_memory_folder_is_reported_once(typed):
    text = "kept is new; the conversation and its memory are stored there"
    assert text in typed("rag_only", ["Hello"], ["Hi."])
    assert "is new" not in typed("rag_only", ["Hello"], ["Hi."])


def test_a_report_and_a_table_that_would_be_a_folder_are_one_line(recorded, capsys):
    """The report ended in a traceback."""
    assert main(["report", "run", "-o", "."]) == 1
    assert capsys.readouterr().err.startswith("agentlab: .: the report cannot be written")
    assert main(["export", "run", "--to", "csv", "-o", "."]) == 1
    assert capsys.readouterr().err.startswith("agentlab: . cannot be written")
