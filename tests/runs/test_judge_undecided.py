"""A judge grades only what words leave undecided, and its scores stay apart from all others."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.cli.parser import main
from support.predictions import row, write_questions, write_rows


@pytest.fixture
def imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_questions(tmp_path / "theirs", {f"q{n}": ["lawyer"] for n in range(3)})
    texts = {"a": ["a lawyer", "an attorney", "a barrister"], "b": ["a doctor of law", "lawyer", "a lawyer"]}
    write_rows(
        folder / "predictions.jsonl",
        [row(f, f"q{n}", text) for f, each in texts.items() for n, text in enumerate(each)],
    )
    (tmp_path / "yes.yaml").write_text(json.dumps({"loop": True, "replies": ['{"verdict": "yes"}']}))
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    return tmp_path


def judge(*options):
    return main(["judge", "run", "--model", "scripted/yes.yaml", "--mode", "live", "--known-answers", "0", *options])


def test_only_undecided_replies_are_judged_and_the_scores_stay_apart(imported, capsys):
    run = al.open_run("run")
    scores = run.scores[run.scores.metric == "answer_correctness"]
    n_undecided = int(scores.value.isna().sum())
    assert 0 < n_undecided < len(scores)
    before = scores.value.fillna(-1).tolist()
    assert judge("--undecided") == 0
    printed = capsys.readouterr().out
    assert "a: the judge calls 2 of 2 undecided replies right" in printed
    after = al.open_run("run").scores
    assert after[after.metric == "answer_correctness"].value.fillna(-1).tolist() == before
    assert len(after[after.metric == "judge_correct_undecided"]) == n_undecided
    assert "judge_correct" not in {*after.metric}
    assert judge() == 0, "a judge of the whole run is another measure"
    whole = al.open_run("run").scores
    assert len(whole[whole.metric == "judge_correct"]) == len(scores)
    assert len(whole[whole.metric == "judge_correct_undecided"]) == n_undecided


def test_without_an_undecided_reply_or_with_labels_one_line_says_why(imported, capsys):
    assert judge("--undecided", "--labels", "labels.csv", "--suggest", "2") == 1
    assert "--undecided takes no --labels" in capsys.readouterr().err
    write_rows(imported / "theirs" / "predictions.jsonl", [row("a", f"q{n}", "a lawyer") for n in range(3)])
    assert main(["import", "predictions", "theirs", "-o", "sure"]) == 0
    assert main(["judge", "sure", "--undecided", "--model", "scripted/yes.yaml", "--mode", "live"]) == 1
    assert "leaves no reply undecided" in capsys.readouterr().err
