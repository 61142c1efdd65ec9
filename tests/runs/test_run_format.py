"""A run folder is whole by itself; format 3 is read, and other formats are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from support import small_runs
from support.paths import ROOT
from support.small_runs import Answering, play, write_set

OLDER = ROOT / "tests" / "data" / "run_format_3"


@pytest.mark.parametrize("form", [1, 2, 99])
def test_a_run_of_another_format_is_refused_in_one_line(tmp_path, capsys, form):
    file = tmp_path / "run.json"
    file.write_text(f'{{"format": {form}, "spec": {{}}, "datasets": {{}}, "models": {{}}}}')
    assert main(["show", str(tmp_path)]) == 1
    text = f"agentlab: {file}: this is run format {form}, agentlab reads formats 3 and 4; run it again\n"
    assert capsys.readouterr().err == text


def test_a_run_of_format_3_is_read_with_and_without_its_data_set(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLDER, "run")
    assert main(["show", "run"]) == 0 and main(["show", "run", "c01"]) == 0
    assert "no expectations shown" in capsys.readouterr().out
    write_set(Path("set"), 3)
    assert main(["show", "run", "c01"]) == 0
    assert "reference: blue" in capsys.readouterr().out


@pytest.fixture
def moved_run(tmp_path, own_home, monkeypatch) -> Path:
    """A copy of a run in another folder, without its data set."""
    # Only a reply with a value is decided.
    monkeypatch.setattr(small_runs, "WRONG", "7 red ones")
    flows = [Answering("one", wrong=[("c01", 0)]), Answering("two")]
    run = play(write_set(tmp_path / "set", 7), tmp_path / "run", *flows)
    shutil.rmtree(tmp_path / "set")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    return Path(shutil.move(run.path, elsewhere / "copy"))


def test_a_copy_elsewhere_has_references_and_causes(moved_run, capsys):
    assert main(["show", "copy", "c01"]) == 0
    output = capsys.readouterr().out
    assert output.count("reference: blue") == 2 and "cause: unsupported claim" in output
    run = al.open_run("copy")
    assert list(run.causes().cause) == ["unsupported claim"] and len(run.conversations) == 7
    assert '"has_expectations":true' in run.report().text and '"kind":"unsupported claim"' in run.report().text
    assert main(["show", "copy", "--all"]) == 0
    assert "poor turns of one, 1 of 14: 1 unsupported claim" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "{}", "[1]", '{"c01": {"turns": 1}}'])
def test_edited_expectations_are_refused(moved_run, capsys, content):
    file = moved_run / "conversations.json"
    file.unlink() if content is None else file.write_text(content)
    assert main(["show", "copy"]) == 1
    change = "was deleted" if content is None else "was edited"
    assert f"conversations.json {change} after the run had ended" in capsys.readouterr().err
