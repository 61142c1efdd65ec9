"""Files of recordings: cut off, edited, doubled, written by two at once, on a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

import agentlab as al
from agentlab.core.errors import NotRecorded, RecordingError
from agentlab.core.messages import Message, Reply, Request, to_json
from agentlab.core.protocols import CallSite
from agentlab.core.trace import Trace
from agentlab.models.scripted import Scripted
from agentlab.wire.keys import normalise_request
from agentlab.wire.recorder import Recorder
from agentlab.wire.recordings import Recordings
from support.doubles import gateway_to
from support.full_disk import FullDisk
from support.paths import TESTS
from support.replays import FLOWS, ForbiddenModel, play, replay, replay_invariants
from support.requests import request_of


@pytest.fixture
def recorded(dataset, tmp_path) -> Path:
    play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    return tmp_path / "recordings" / "run.jsonl"


def test_truncated_file_is_named_and_repaired_by_the_next_recording(dataset, recorded, tmp_path):
    whole = recorded.read_bytes()
    for size in range(len(whole) - 400, len(whole), 37):
        recorded.write_bytes(whole[:size])
        if whole[:size].endswith(b"\n"):
            continue
        with pytest.raises(RecordingError, match=r"run\.jsonl:\d+: the line is incomplete"):
            Recordings.open(recorded.parent, "run")
    run = play(dataset, "auto", tmp_path / "mended", flows=FLOWS)
    assert run.summary["recordings"]["new"] <= 1
    assert replay(dataset, tmp_path / "again", flows=FLOWS).summary["status"] == "complete"


def test_no_edited_line_is_ever_replayed(recorded):
    lines = recorded.read_text().splitlines(True)
    for number, line in enumerate(lines):
        row = json.loads(line)
        for name, value in row.items():
            if name == "kind":
                continue
            changed = {**row, name: f"{value}x" if isinstance(value, str) else [value]}
            recorded.write_text("".join([*lines[:number], json.dumps(changed) + "\n", *lines[number + 1 :]]))
            with pytest.raises(RecordingError, match=rf"run\.jsonl:{number + 1}: "):
                Recordings.open(recorded.parent, "run")


@pytest.mark.parametrize(
    "junk", ["", "{", "[]\n", "null\n", '{"kind": "recordings", "format": 2}\n', "\x00\n", "<<<<<<< HEAD\n"]
)
def test_invalid_recording_is_one_clear_line(tmp_path, junk):
    (tmp_path / "a.jsonl").write_text(junk)
    with pytest.raises(RecordingError, match=r"a\.jsonl"):
        Recordings.open(tmp_path, "a")


def test_doubled_lines_and_files_change_nothing_and_two_answers_are_refused(dataset, recorded, tmp_path):
    lines = recorded.read_text().splitlines(True)
    recorded.write_text("".join([*lines, *lines[1:]]))
    assert replay(dataset, tmp_path / "doubled", flows=FLOWS).summary["status"] == "complete"
    recorded.rename(recorded.with_name("elsewhere.jsonl"))
    assert replay(dataset, tmp_path / "named", flows=FLOWS, also_recorded=["elsewhere"]).summary["status"] == "complete"
    folder = tmp_path / "other"
    request = normalise_request("m", "", Request(messages=(Message(role="user", text="Hi"),)), 0)
    for name, text in (("a", "Hello"), ("b", "Good day")):
        completion = to_json({"message": Message(role="agent", text=text)})
        entry = {"kind": "completion", "request": request.fields, "repeat": 0, "completion": completion, "seconds": 1.0}
        Recordings.open(folder, name, write=True).add(request.key(0), entry, request.parts)
    for name, also, text in (("a", ["b"], "Hello"), ("b", ["a"], "Good day"), ("c", ["b", "a"], "Good day")):
        row = Recordings.open(folder, name, also).look_up(request.key(0))
        assert row.completion.message.text == text, "the spec's own file wins, then what it names first"
    both = (folder / "a.jsonl").read_text() + (folder / "b.jsonl").read_text().splitlines(True)[2]
    (folder / "a.jsonl").write_text(both)
    with pytest.raises(RecordingError, match=r"a\.jsonl:4: another answer to the same request is at .*a\.jsonl:3"):
        Recordings.open(folder, "a")


def test_a_reader_waits_for_the_line_that_is_being_written(recorded):
    whole = recorded.read_bytes()
    results: list[int] = []
    reader = threading.Thread(target=lambda: results.append(len(Recordings.open(recorded.parent, "run"))))
    with FileLock(recorded.with_suffix(".lock")):
        recorded.write_bytes(whole[:-30])
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        recorded.write_bytes(whole)
    reader.join(10)
    assert results == [len(Recordings.open(recorded.parent, "run"))]


def test_a_line_in_another_form_is_read_and_a_missing_part_is_named(tmp_path):
    request = normalise_request("m", "", Request(messages=(Message(role="user", text="Hi"),)), 0)
    fields = {"message": {"role": "agent"}}
    row = {"kind": "completion", "request": request.fields, "repeat": 0, "completion": fields, "seconds": 1.0}
    Recordings.open(tmp_path, "a", write=True).add(request.key(0), row, request.parts)
    header, part, call = (tmp_path / "a.jsonl").read_text().splitlines()
    spread = json.dumps(json.loads(call), separators=(" , ", " : "))
    (tmp_path / "a.jsonl").write_text(f"{header}\n{part}\n{spread}\n")
    read = Recordings.open(tmp_path, "a")
    assert request_of(read, read.look_up(request.key(0))).messages[0].text == "Hi"
    (tmp_path / "a.jsonl").write_text(f"{header}\n{call}\n")
    read = Recordings.open(tmp_path, "a")
    with pytest.raises(RecordingError, match=r"a\.jsonl:2: message or tool [0-9a-f]+ is not recorded"):
        request_of(read, read.look_up(request.key(0)))


@pytest.mark.slow
def test_two_processes_may_record_into_one_file_at_once(dataset, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import support.replays as t; from pathlib import Path\n"
        "t.play(Path(sys.argv[2]), 'auto', Path(sys.argv[3]), flows=t.FLOWS, concurrency=2)"
    )
    arguments = [sys.executable, "-c", code, str(TESTS), str(dataset)]
    both = [subprocess.Popen([*arguments, str(tmp_path / name)]) for name in ("one", "two")]
    assert [process.wait(120) for process in both] == [0, 0]
    one, two = al.open_run(tmp_path / "one"), al.open_run(tmp_path / "two")
    replayed = replay(dataset, tmp_path / "replayed", flows=FLOWS)
    assert replay_invariants(one)["flows"] == replay_invariants(two)["flows"] == replay_invariants(replayed)["flows"]


def test_secrets_are_not_written_down(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-very-secret-value")

    async def careless(turn, session):
        return Reply(text=(await session.complete((Message(role="user", text=os.environ["SAID"]),))).message.text)

    monkeypatch.setenv("MORE_API_KEYS", "first-long-key,second-long-key")
    for secret in ("a-very-secret-value", "second-long-key"):
        monkeypatch.setenv("SAID", secret)
        out = tmp_path / secret
        with pytest.raises(RecordingError, match="holds the value of M"):
            play(dataset, "auto", out, flows=[careless], limit=1)
        assert secret not in (tmp_path / "recordings" / "run.jsonl").read_text()
        (row,) = [json.loads(line) for line in (out / "calls.jsonl").read_text().splitlines() if "model_call" in line]
        assert row["completion"], "it was paid for, so it is in the ledger"


async def test_a_recording_made_on_openai_does_not_answer_for_another_server(tmp_path, monkeypatch):
    request = Request(messages=(Message(role="user", text="Hi"),))
    recorder = Recorder("record", Recordings.open(tmp_path, "a", write=True))
    gateway = gateway_to(Scripted(["Hello"]), Trace("f", "c"), recorder=recorder)
    await gateway.ask(request, CallSite(turn=0), lambda text: None)
    texts = []
    replaying = Recorder("replay", Recordings.open(tmp_path, "a"))
    await gateway_to(ForbiddenModel(), Trace("f", "c"), recorder=replaying).ask(request, CallSite(turn=0), texts.append)
    assert texts == ["Hello"], "a replay still streams"
    elsewhere = gateway_to(ForbiddenModel(), Trace("f", "c"), recorder=replaying, endpoint="compatible")
    missed = (await elsewhere.ask(request, CallSite(turn=0), texts.append)).failure
    assert isinstance(missed, NotRecorded)
    assert "server is 'compatible', was ''" in str(missed)
    assert missed.cause == "server"


def test_writer_survives_a_replaced_file(tmp_path):
    def entry(text):
        recorded = normalise_request("m", "", Request(messages=(Message(role="user", text=text),)), 0)
        row = {
            "kind": "completion",
            "request": recorded.fields,
            "repeat": 0,
            "completion": {"message": {"role": "agent"}},
            "seconds": 1.0,
        }
        return recorded.key(0), row, recorded.parts

    writer = Recordings.open(tmp_path, "a", write=True)
    writer.add(*entry("one"))
    header = (tmp_path / "a.jsonl").read_text().splitlines(True)[0]
    (tmp_path / "a.jsonl").write_text(header)
    writer.add(*entry("one"))
    writer.add(*entry("two"))
    assert len(Recordings.open(tmp_path, "a")) == 2
    (tmp_path / "a.jsonl").unlink()
    writer.add(*entry("three"))
    assert len(Recordings.open(tmp_path, "a")) == 1


def test_a_disk_that_is_full_ends_the_run_and_leaves_the_file_whole(dataset, tmp_path, monkeypatch):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"])
    file = tmp_path / "recordings" / "run.jsonl"
    before = file.read_bytes()
    FullDisk(monkeypatch, "run.jsonl", fraction=0.5)
    with pytest.raises(RecordingError, match=r"run\.jsonl: cannot be written: No space left"):
        play(dataset, "auto", tmp_path / "b", flows=["rag_only"], generation={"seed": 8})
    assert file.read_bytes() == before
