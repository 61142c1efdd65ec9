"""Small entry points for an attack: a name, a file's time, a quotation, a number."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import DatasetError
from agentlab.data.datasets import load_dataset
from agentlab.flows.json_replies import read_object
from agentlab.lab.run import open_run
from agentlab.models import weights
from agentlab.session.traced import Files
from agentlab.tools.files import WORKSPACE
from support.small_runs import Answering, play, write_set


def test_a_conversation_cannot_pass_for_the_filling_of_a_memory(tmp_path):
    row = {"id": "ingest:colours/c0", "turns": [{"user": "hi"}]}
    (tmp_path / "conversations.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DatasetError, match=r"conversations\.jsonl:1: .*'ingest:colours/c0' starts with 'ingest:'"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("odd", ["link", "pipe"])
def test_a_memory_that_a_data_set_brings_holds_ordinary_files_alone(tmp_path, odd):
    (tmp_path / "kept").mkdir()
    os.mkfifo(tmp_path / "kept" / "x") if odd == "pipe" else (tmp_path / "kept" / "x").symlink_to("/dev/zero")
    row = {"id": "c0", "turns": [{"user": "hi"}], "memory": "kept"}
    (tmp_path / "conversations.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DatasetError, match="contains special files or links"):
        load_dataset(tmp_path)


class Rooted(SimpleNamespace):
    """Session with files only; unlike a plain namespace it supports weak references."""


def test_a_pipe_among_the_files_of_the_file_tools_is_left_where_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "notes.txt").write_text("mine")
    session = Rooted(has=SimpleNamespace(files=Files(workspace=tmp_path, edits_in_place=False)))
    assert [file.name for file in WORKSPACE.factory(session).iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("way", ["pipe", "folder"])
def test_own_model_must_be_an_ordinary_file(tmp_path, monkeypatch, capsys, way):
    os.mkfifo(tmp_path / "own.gguf") if way == "pipe" else (tmp_path / "own.gguf").mkdir()
    monkeypatch.setenv("AGENTLAB_LOCAL_MODEL", str(tmp_path / "own.gguf"))
    data = write_set(tmp_path / "colours", 1)
    run = ["run", "--dataset", str(data), "--flow", "rag_only", "--model", "local/own", "--set"]
    assert main([*run, "embedder=hashing/hashing-64", "--out", str(tmp_path / "run")]) == 1
    assert "is not a file" in capsys.readouterr().err


QUOTED = 'The page says {"tool": "write_file"}, which I ignore. {"tool": null}'


@pytest.mark.parametrize(
    "text, tool",
    [
        (QUOTED, None),
        ('{"tool": null}, whatever "{"tool": "write_file"}" says', None),
        ('{"tool": "a"} and again {"tool": "a"}', "a"),
        ('so {"why": 1} {"tool": "a"}', "a"),
        ('{"why": "{\\"tool\\": \\"b\\"}", "tool": "a"}', "a"),
    ],
)
def test_a_quoted_choice_is_no_choice(text, tool):
    parsed = read_object(text, "tool")
    assert (parsed or {}).get("tool") == tool


@pytest.mark.parametrize("text", ['{"n": 1e999}', '{"n": NaN}', '{"n": ' + "9" * 5000 + "}", '{"n": -Infinity}'])
def test_a_number_that_is_none_is_read_as_null(text):
    assert read_object(text) == {"n": None}


def test_too_deep_object_in_a_reply_is_refused():
    started = time.process_time()
    assert read_object('{"a": ' + "[" * 5000 + "]" * 5000 + "}") is None
    assert time.process_time() - started < 2


class Odd(Answering):
    """Flow that passes on a value that JSON cannot express."""

    async def respond(self, turn, session):
        session.notify("odd", "numbers", value=float("inf"), big=10**400, deep=json.loads("[" * 300 + "]" * 300))
        return await super().respond(turn, session)


def test_whatever_a_flow_hands_on_the_ledger_can_be_read_again(tmp_path):
    run = play(write_set(tmp_path / "colours", 1), tmp_path / "run", Odd())
    for line in (run.path / "calls.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
    again = open_run(run.path)
    assert len(again.calls) == len(run.trace("answering", "c00").events)


@pytest.mark.parametrize(
    "line, text",
    [
        ("today: 2001-99-99", "month must be in 1..12"),
        ("limit: " + "[" * 3000, "nested deeper than 100 levels"),
        ("budget: {usd: .inf}", "budget.usd"),
        ("limit: !!int ''", "not YAML"),
    ],
)
def test_an_odd_spec_is_one_line(tmp_path, capsys, line, text):
    (tmp_path / "spec.yaml").write_text(f"flows: [rag_only]\n{line}\n")
    assert main(["run", str(tmp_path / "spec.yaml")]) == 1
    printed = capsys.readouterr().err
    assert text in printed and printed.count("\n") == 1 and "Traceback" not in printed


def test_weights_that_were_swapped_with_size_and_time_kept_are_hashed_again(tmp_path):
    file = tmp_path / "w.gguf"
    file.write_bytes(b"right bytes")
    pinned = weights.WeightFile(name="w.gguf", sha256=hashlib.sha256(b"right bytes").hexdigest(), bytes=11, sources=())
    assert weights.is_verified(file, pinned) and weights.is_verified(file, pinned)
    times = file.stat()
    other = tmp_path / "other"
    other.write_bytes(b"wrong bytes")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(file)
    assert not weights.is_verified(file, pinned)
    Path(file).write_bytes(b"right bytes")
    assert weights.is_verified(file, pinned)
