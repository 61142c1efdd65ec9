"""A file edited after the end of a run is refused by name, with the repair; runs older than checksums are reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import read_baseline, write_baseline
from agentlab.lab.run import open_run
from support.full_disk import FullDisk
from support.small_runs import Answering, play, write_set
from support.unsealing import unseal

WRONG = [(f"c{number:02}", 0) for number in range(4)]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run that is half wrong, beside the baseline of one that is not."""
    data = write_set(tmp_path / "colours", 4)
    write_baseline(play(data, tmp_path / "good"), tmp_path / "good.jsonl")
    return play(data, tmp_path / "run", Answering(wrong=WRONG), Answering("other")).path


def edit(file: Path, old: str, new: str) -> None:
    content = file.read_text()
    assert old in content
    file.write_text(content.replace(old, new))


EDITS = {
    "turns.jsonl": ('"value":0.0', '"value":1.0'),
    "calls.jsonl": ('"input_tokens":100', '"input_tokens":1'),
    "summary.json": ('"input_tokens": 800', '"input_tokens": 8'),
    "run.json": ('"graders": {', '"graders": {"mine": "1", '),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_is_refused_by_name_everywhere(finished, tmp_path, capsys, name):
    edit(finished / name, *EDITS[name])
    run = str(finished)
    for command in (
        ["compare", run],
        ["gate", run, "--baseline", str(tmp_path / "good.jsonl")],
        ["gate", run, "--baseline", str(tmp_path / "new.jsonl"), "--update"],
        ["report", run, "--out", str(tmp_path / "page.html")],
        ["show", run],
        ["show", "--trace", run],
    ):
        assert main(command) == 1, command
        printed = capsys.readouterr().err.strip()
        assert printed.startswith(f"agentlab: {finished / name} was edited after the run had ended; "), printed
        assert ("agentlab score" if name == "summary.json" else "from a copy") in printed
    assert not [name for name in ("new.jsonl", "page.html") if (tmp_path / name).exists()]


@pytest.mark.parametrize("name", ["turns.jsonl", "calls.jsonl", "run.json"])
def test_resuming_writes_no_checksum_over_an_edit(finished, tmp_path, name):
    edit(finished / name, *EDITS[name])
    with pytest.raises(RunError, match=rf"{name} was edited"):
        play(tmp_path / "colours", finished, Answering(), Answering("other"), resume=True)


def test_resume_rewrites_an_edited_summary(finished, tmp_path):
    edit(finished / "summary.json", *EDITS["summary.json"])
    again = play(tmp_path / "colours", finished, Answering(), Answering("other"), resume=True)
    assert again.result.flows["other"].input_tokens == 800 and open_run(finished).folder.has_checksums


def test_a_deleted_file_and_a_deleted_checksum_are_named(finished):
    for name in ("turns.jsonl", "calls.jsonl"):
        content = (finished / name).read_bytes()
        (finished / name).unlink()
        with pytest.raises(RunError, match=rf"{name} was deleted"):
            open_run(finished)
        (finished / name).write_bytes(content)
    summary = json.loads((finished / "summary.json").read_text())
    del summary["seal"]
    (finished / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunError, match=r"summary\.json lost its checksums.*`agentlab score"):
        open_run(finished)


def test_run_with_checksums_may_move_and_be_reformatted(finished, tmp_path):
    shutil.move(finished, tmp_path / "elsewhere")
    summary = tmp_path / "elsewhere" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text())))
    assert open_run(tmp_path / "elsewhere").folder.has_checksums
    assert "seal" not in open_run(tmp_path / "elsewhere").summary


def test_regrading_rewrites_an_edited_summary_and_refuses_an_edited_ledger(finished):
    before = (finished / "summary.json").read_text()
    edit(finished / "summary.json", *EDITS["summary.json"])
    assert main(["score", str(finished)]) == 0 and open_run(finished).folder.has_checksums
    assert json.loads((finished / "summary.json").read_text())["flows"] == json.loads(before)["flows"]
    edit(finished / "calls.jsonl", *EDITS["calls.jsonl"])
    with pytest.raises(RunError, match=r"calls\.jsonl was edited"):
        open_run(finished, regrade=True)


def test_a_header_written_after_the_end_has_a_checksum_too(finished):
    folder = open_run(finished).folder
    folder.write_json("run.json", {**folder.header, "note": "mine"})
    assert open_run(finished).folder.has_checksums


def test_run_older_than_checksums_is_read_with_a_note(finished, tmp_path, capsys):
    unseal(finished)
    assert main(["compare", str(finished)]) == 0
    assert f"{finished} predates checksums" in capsys.readouterr().err
    edit(tmp_path / "good.jsonl", '"check": "', '"check": "", "was": "')
    assert main(["gate", str(finished), "--baseline", str(tmp_path / "good.jsonl"), "--margin", "answer_f1=1"]) != 1
    printed = " ".join(capsys.readouterr().out.split())
    for name in ("run", "good.jsonl"):
        assert f"{name} predates checksums" in printed


def test_edited_baseline_is_refused_and_a_reformatted_one_is_not(tmp_path):
    write_baseline(play(write_set(tmp_path / "colours", 2), tmp_path / "run"), tmp_path / "b.jsonl")
    content = (tmp_path / "b.jsonl").read_text()
    for old, new in (('"answer_f1": 1.0', '"answer_f1": 0.5'), ('"mode": "live"', '"mode": "replay"')):
        (tmp_path / "b.jsonl").write_text(content)
        edit(tmp_path / "b.jsonl", old, new)
        with pytest.raises(RunError, match=r"b\.jsonl was edited after it was made; make it again with --update"):
            read_baseline(tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").write_text("".join(line + "\n" for line in content.splitlines()[:-1]))
    with pytest.raises(RunError, match="was edited"):
        read_baseline(tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").write_text(content.replace('": ', '":'))
    read_baseline(tmp_path / "b.jsonl")


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_half_written_header_is_no_edit(finished, tmp_path, capsys, name):
    with pytest.MonkeyPatch.context() as patched:
        FullDisk(patched, name)
        assert main(["score", str(finished)]) == 1
    assert "cannot be written" in capsys.readouterr().err
    play(tmp_path / "colours", finished, Answering(), Answering("other"), resume=True)
    assert open_run(finished).folder.has_checksums


def test_rows_after_a_second_summary_break_its_checksum_too(finished):
    folder = open_run(finished).folder
    row, *_ = folder.turns()
    for _ in range(2):
        folder.append_turn(row)
        assert not folder.summary_file.exists()
        folder.write_json("summary.json", {})


@pytest.mark.parametrize("content", ["null", "[]", "{}", '{"seal": 1}'])
def test_a_summary_that_is_none_is_refused_by_name(finished, content):
    (finished / "summary.json").write_text(content)
    with pytest.raises(RunError, match=r"summary\.json lost its checksums"):
        open_run(finished)


def test_untouched_interrupted_run_is_resumed(finished, tmp_path):
    before = open_run(finished).result.flows["answering"].scores["exact_match"].mean
    (finished / "summary.json").unlink()
    run = play(tmp_path / "colours", finished, Answering(wrong=WRONG), Answering("other"), resume=True)
    assert run.result.flows["answering"].scores["exact_match"].mean == before == 0.5
