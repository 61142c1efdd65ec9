"""`agentlab score` regrades a run without its flows; differently graded runs are not compared."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.cli.parser import main
from support.small_runs import Answering, edit_header, play, write_set


@pytest.fixture
def data(tmp_path, own_home):
    return write_set(tmp_path / "colours", conversations=4)


def test_a_run_is_graded_by_other_scorers_and_its_flows_are_not_asked(data, tmp_path):
    run = play(data, tmp_path / "run", Answering(wrong=[("c00", 0)]), scorers=["answer"])
    calls, replies = (
        (run.path / "calls.jsonl").read_bytes(),
        [(row.trial, row.turn, row.reply) for row in run.turn_rows()],
    )
    assert main(["score", str(run.path), "--scorer", "rouge"]) == 0
    again = al.open_run(run.path)
    assert list(again.result.flows["answering"].scores) == ["rouge_l"]
    assert again.result.flows["answering"].scores["rouge_l"].mean == 7 / 8
    assert again.result.flows["answering"].llm_calls == run.result.flows["answering"].llm_calls
    assert (run.path / "calls.jsonl").read_bytes() == calls
    assert [(row.trial, row.turn, row.reply) for row in again.turn_rows()] == replies
    assert list(again.folder.header["graders"]) == ["rouge"]


def test_differently_graded_runs_are_refused_and_score_repairs_them(data, tmp_path, capsys):
    one, other = (play(data, tmp_path / name, scorers=["answer"]) for name in ("one", "other"))
    assert main(["gate", str(one.path), "--baseline", str(tmp_path / "b.jsonl"), "--update"]) == 0
    edit_header(one, lambda header: header["graders"].update(answer="0" * 64))
    for command in (["compare", str(one.path), str(other.path)], ["gate", str(one.path), "--baseline", "b.jsonl"]):
        assert main([part if part != "b.jsonl" else str(tmp_path / part) for part in command]) == 1
        assert "agentlab score RUN" in capsys.readouterr().err
    assert main(["score", str(one.path)]) == 0
    assert main(["compare", str(one.path), str(other.path)]) == 0
    assert main(["gate", str(one.path), "--baseline", str(tmp_path / "b.jsonl")]) == 0


def test_changed_expectations_count_if_questions_are_equal(data, tmp_path, capsys):
    run = play(data, tmp_path / "run", scorers=["answer"])
    file = data / "conversations.jsonl"
    file.write_text(file.read_text().replace('"blue"', '"green"'))
    assert main(["score", str(run.path)]) == 0
    assert al.open_run(run.path).result.flows["answering"].scores["exact_match"].mean == 0
    file.write_text(file.read_text().replace("c01 1", "something else"))
    assert main(["score", str(run.path)]) == 1
    assert "has another question now (turn 2 of c01)" in capsys.readouterr().err


def test_a_scorer_that_breaks_leaves_a_run_that_nothing_is_compared_with(data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text('"""x"""\ndef metrics(turn): return ("m",)\ndef score(turn, outcome): 1 / 0\n')
    one, _other = (play(data, tmp_path / name, scorers=["answer"]) for name in ("one", "other"))
    assert main(["score", "one", "--scorer", "broken.py"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert main(["compare", "one", "other"]) == 1
    assert main(["score", "one", "--scorer", "answer"]) == 0
    assert main(["compare", "one", "other"]) == 0
    assert json.loads((one.path / "run.json").read_text())["spec"]["scorers"] == ["answer"]
