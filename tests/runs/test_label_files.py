"""Files of labels as people keep them: their own columns, no line end, ids that a spreadsheet would run."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab import notebook
from agentlab.cli.parser import main
from agentlab.models.scripted import Scripted
from support.predictions import write_rows

IDS = ["-1", "=1+1", "+c", "@d", "e", "f"]


@pytest.fixture
def ask(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `agentlab judge` on six conversations, twice each, with labels.csv; return its output."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": name, "turns": [{"user": "Who?", "reference_answers": ["Anna."]}]} for name in IDS]
    (tmp_path / "set").mkdir()
    write_rows(tmp_path / "set" / "conversations.jsonl", rows)

    async def good(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text="Anna.")

    with al.Lab(
        model=Scripted(["x"]), flows=[good], datasets=tmp_path / "set", embedder="hashing/hashing-64",
        generation={"temperature": 0.5}, epochs=2,
    ) as lab:  # fmt: skip
        lab.run_sync(out=tmp_path / "run")
    Path("judge.yaml").write_text('loop: true\nreplies: [\'{"verdict": "yes"}\']\n')
    return lambda *more: main(
        ["judge", "run", "--model", "scripted/judge.yaml", "--known-answers", "0", "--labels", "labels.csv", *more]
    )


def cells() -> list[dict[str, str]]:
    with Path("labels.csv").open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_rows_are_written_under_the_columns_that_the_file_has(ask, capsys):
    Path("labels.csv").write_text("note,conversation,turn,flow,label\nsure,e,0,good,1\n", newline="")
    assert ask("--suggest", "11") == 0
    assert cells()[0] == {"note": "sure", "conversation": "e", "turn": "0", "flow": "good", "label": "1", "epoch": None,
                          "question": None, "reference": None, "reply": None}  # fmt: skip
    fresh = cells()[1:]
    assert {row["label"] for row in fresh} == {""}, "nobody has given one"
    assert {row["reply"] for row in fresh} == {"Anna."} and {row["epoch"] for row in fresh} == {"0", "1"}
    assert ask() == 0
    assert "1 human labels" in capsys.readouterr().out


def test_a_label_without_a_line_end_is_not_lost(ask, capsys):
    Path("labels.csv").write_bytes("\ufeffconversation,turn,flow,epoch,label,note\ne,0,good,0,1,größer".encode())
    assert ask("--suggest", "2") == 0
    assert cells()[0]["note"] == "größer" and len(cells()) == 3
    assert Path("labels.csv").read_bytes().startswith("\ufeff".encode()), "some spreadsheets need it"
    assert ask() == 0
    assert "1 human labels" in capsys.readouterr().out


def test_an_empty_file_is_a_new_one(ask):
    Path("labels.csv").touch()
    assert ask("--suggest", "2") == 0
    assert len(cells()) == 2 and "reply" in cells()[0]


def test_replies_that_wait_for_a_label_are_not_chosen_again(ask, capsys):
    for more, beside in (("5", ""), ("5", ", with 5 that have no label"), ("5", ", with 10 that have no label")):
        assert ask("--suggest", more) == 0
        fresh = 2 if "10" in beside else 5
        assert f"{fresh} replies to label are in labels.csv{beside}" in capsys.readouterr().out
    assert len({(row["conversation"], row["epoch"]) for row in cells()}) == len(cells()) == 12


def test_ids_that_a_spreadsheet_would_run_are_read_back_by_their_own_name(ask, capsys):
    assert ask("--suggest", "12") == 0
    assert {row["conversation"] for row in cells()} == {"'-1", "'=1+1", "'+c", "'@d", "e", "f"}
    written = Path("labels.csv").read_text()
    Path("labels.csv").write_text(written.replace("'@d", "@d"))  # as by hand
    labelling = notebook.label(al.open_run("run"), "labels.csv")
    labelling.right.click()
    assert len(cells()) == 12, "the label stands in the row of its reply"
    while not labelling.right.disabled:
        labelling.right.click()
    assert len(cells()) == 12 and {row["label"] for row in cells()} == {"1"}
    capsys.readouterr()
    assert ask("--suggest", "3") == 0
    printed = capsys.readouterr().out
    assert "12 human labels" in printed and "0 replies to label" in printed
