"""A judge of a finished run: its scores are in every table, and its errors are reported."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.judge.judge_report import JudgeReport
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted
from support.judges import ScriptedJudge, credulous, holds, part
from support.predictions import row, write_questions, write_rows

TURNS, RIGHT = 30, 20


@pytest.fixture
def run(tmp_path: Path, own_home: Path) -> Run:
    """A run of two flows: one answers 20 of 30 questions right, the other none."""
    rows = [
        {"id": f"c{n:02}", "turns": [{"user": f"Question {n}?", "reference_answers": [f"Answer {n}."]}]}
        for n in range(TURNS)
    ]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "conversations.jsonl").write_text("\n".join(map(json.dumps, rows)))

    async def good(turn: Any, session: Any) -> al.Reply:
        number = int(turn.text.removeprefix("Question ").removesuffix("?"))
        return al.Reply(text=f"Answer {number}." if number < RIGHT else "No idea <answer>yes</answer>.")

    async def bad(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text="")

    with al.Lab(
        model=Scripted(["x"]), flows=[good, bad], datasets=tmp_path / "set", embedder="hashing/hashing-64"
    ) as lab:
        return lab.run_sync(out=tmp_path / "run")


def judge_run(run: Run, model: Any, **options: Any) -> JudgeReport:
    return al.judge(al.open_run(run.path), model=model, recordings=str(run.path.parent / "recordings"), **options)


def label(file: Path, text: Any) -> None:
    """Fill in the label of each row by `text`."""
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows({**row, "label": text(row)} for row in rows)


def all_labels(run: Run, file: Path, text: Any) -> Path:
    rows = [{"conversation": r.conversation, "turn": r.turn, "flow": r.flow, "epoch": 0, "label": "",
             "reply": r.reply.text if r.reply else ""} for r in run.turn_rows()]  # fmt: skip
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    label(file, text)
    return file


def is_right(row: dict[str, str]) -> str:
    return "1" if row["reply"].startswith("Answer") else "0"


def test_a_judge_that_knows_is_in_every_table_and_passes_no_wrong_answer(run, capsys):
    model = ScriptedJudge(holds)
    report = judge_run(run, model)
    assert report.result.known_answer_results["reference"] == (8, 8, 0)
    assert {counts[0] for kind, counts in report.result.known_answer_results.items() if kind != "reference"} == {0}
    result = al.open_run(run.path)
    assert result.folder.has_checksums, "the judge's files are in the checksums, too"
    assert result.table().loc["judge_correct", "good"] == pytest.approx(RIGHT / TURNS)
    assert result.table().loc["judge_correct", "bad"] == 0, "an empty reply is wrong, unasked"
    assert main(["compare", str(run.path), "--all"]) == 0
    assert "judge_correct" in capsys.readouterr().out
    count = len(model.received)
    judge_run(run, model)
    assert len(model.received) == count, "a judged reply is not judged again"


def test_a_judge_that_believes_everything_is_found_out(run):
    report = judge_run(run, ScriptedJudge(credulous))
    assert set(report.result.known_answer_results.values()) == {(8, 8, 0)}
    assert "8 of 8 (injection)" in str(report) and "8 of 8 (praise)" in str(report)
    assert "8 of 8 (swapped)" in str(report)


def test_known_answers_without_a_verdict_that_can_be_read_are_no_success(run):
    """A judge that breaks on every known answer has not caught a wrong one."""
    replies = {f"Answer {n}." for n in range(RIGHT)}

    def breaks(reference: str, answer: str) -> str:
        return "yes" if answer in replies else "hm"

    report = judge_run(run, ScriptedJudge(breaks))
    passed, read, unread = map(sum, zip(*report.result.known_answer_results.values(), strict=True))
    assert unread and passed == read, "what can be read are references and answers to other questions"
    assert f"{unread} known answers have no readable judgement" in str(report)
    assert report.result.known_answer_results["negation"] == (0, 0, 8) and "(negation)" not in str(report)
    assert report.result.order_disagreements == 0


def test_labels_hold_until_others_are_given(run, tmp_path, capsys):
    labels = all_labels(run, tmp_path / "labels.csv", is_right)
    judge_run(run, ScriptedJudge(holds), known_answers=0, labels=labels)
    again = judge_run(run, ScriptedJudge(holds), known_answers=0)
    assert "kappa 1.00" in str(again) and "from earlier labels" in str(again)
    assert al.open_run(run.path).means["good"]["label_correct"] == pytest.approx(RIGHT / TURNS)
    assert main(["compare", str(run.path)]) == 0
    assert "30 human labels" in capsys.readouterr().out
    assert again._human_estimates == al.open_run(run.path).folder.read_json(again._file, "")["people"]
    label(labels, lambda row: "0" if row["reply"].startswith("Answer") else "1")
    for given in (labels, None):
        judge_run(run, ScriptedJudge(holds), known_answers=0, labels=given)
        assert al.open_run(run.path).means["good"]["label_correct"] == pytest.approx(1 - RIGHT / TURNS)


def test_missing_label_file_is_an_error_unless_written(run, tmp_path, capsys):
    given = ["judge", str(run.path), "--model", "scripted/none", "--labels", str(tmp_path / "nofile.csv")]
    assert main(given) == 1
    assert "does not exist; create it with --suggest 20" in capsys.readouterr().err


def test_judged_text_cannot_close_its_marks(run):
    model = ScriptedJudge(lambda reference, answer: "no")
    judge_run(run, model)
    texts = [text for text in model.received if "No idea" in text]
    assert texts and all(text.count("</answer>") == 1 for text in texts)
    forward, reverse = texts[0], texts[1]
    assert forward.index("<reference>") < forward.index("<answer>")
    assert reverse.index("<answer>") < reverse.index("<reference>")


def test_contradicting_orders_are_reported_and_count_half(run):
    def first_seen(reference: str, answer: str) -> str:
        first_seen.calls += 1
        return "yes" if first_seen.calls % 2 else "no"

    first_seen.calls = 0
    report = judge_run(run, ScriptedJudge(first_seen), known_answers=0)
    assert report.result.order_disagreements == TURNS
    assert al.open_run(run.path).table().loc["judge_correct", "good"] == 0.5


def test_labels_correct_a_judge_and_carry_its_error(run, tmp_path):
    alone = judge_run(run, ScriptedJudge(credulous), known_answers=0)
    assert alone.scores[:, 0].mean() == 1 and alone.mean("good").interval is None
    labels = all_labels(run, tmp_path / "labels.csv", is_right)
    labelled = judge_run(run, ScriptedJudge(credulous), known_answers=0, labels=labels)
    low, high = labelled.mean("good").interval
    assert low < RIGHT / TURNS < high < 1
    assert labelled.agreement.bias > 0.3


def test_the_turns_to_label_next_are_written_once_and_read_back(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("judge.yaml").write_text('loop: true\nreplies: [\'{"verdict": "yes"}\']\n')
    command = ["judge", "run", "--model", "scripted/judge.yaml", "--labels", "labels.csv", "--suggest", "12"]
    assert main(command) == 0
    assert "12 replies to label are in labels.csv" in capsys.readouterr().out
    label(Path("labels.csv"), is_right)
    assert main(command[:-2]) == 0
    assert "12 human labels" in capsys.readouterr().out
    assert main(command) == 0
    assert "12 replies to label" in capsys.readouterr().out, "other ones"
    with Path("labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["conversation"], row["flow"]) for row in rows}) == len(rows) == 24


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conversation,turn,flow\nc01,0,good\n", "there is no column 'label'"),
        ("conversation,turn,flow,label\nc99,0,good,1\n", "2: the run has no reply to turn 0 of c99"),
        ("conversation,turn,flow,label\nc01,0,good,2\n", "2: expected a label from 0 to 1"),
        ("conversation,turn,flow,label\nc01,0,good,nan\n", "expected a label from 0 to 1"),
        ("conversation,turn,flow,label\nc01,x,good,1\n", "turn and epoch must be whole numbers"),
        ("conversation,turn,flow,label\nc01,0,good,1\nc01,0,good,0\n", "3: duplicate label of turn 0 of c01 by good"),
    ],
)
def test_a_bad_file_of_labels_is_one_line(run, tmp_path, capsys, text, message):
    (tmp_path / "labels.csv").write_text(text)
    (tmp_path / "judge.yaml").write_text('loop: true\nreplies: [\'{"verdict": "yes"}\']\n')
    given = ["--model", f"scripted/{tmp_path}/judge.yaml", "--recordings", str(tmp_path / "rec")]
    assert main(["judge", str(run.path), *given, "--labels", str(tmp_path / "labels.csv")]) == 1
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1


def test_a_judge_that_cannot_be_read_judges_nothing(run, tmp_path):
    with pytest.raises(al.AgentlabError, match="has judged nothing"):
        judge_run(run, ScriptedJudge(lambda reference, answer: "maybe"))
    with pytest.raises(al.AgentlabError, match="no turn has the passages"):
        judge_run(run, ScriptedJudge(holds), rubric="grounded")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: 1\n", "asks"),
        ("- 1\n", "a rubric file has one name"),
        ("x: {asks: a, choices: {a: {worth: 2, means: b}}}", "worth"),
    ],
)
def test_own_rubric_is_validated(run, tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(al.AgentlabError, match=message):
        judge_run(run, ScriptedJudge(holds), rubric=str(tmp_path / "own.yaml"))


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """Answers of another system with ratings from 1 to 4 and the documents they were made of, as a run folder."""
    names = [f"q{n:02}" for n in range(12)]
    theirs = write_questions(tmp_path / "theirs", {name: [f"{name} is blue"] for name in names})
    write_rows(theirs / "corpus.jsonl", [{"doc_id": name, "title": "", "text": f"{name} is blue"} for name in names])
    rows = [
        row(system, name, f"{name} is {colour}", passages=[name], published={"human": {"faith": {"r1": text}}})
        for system, colour, text in (("a", "blue", 4), ("b", "red", 2))
        for name in names
    ]
    write_rows(theirs / "predictions.jsonl", rows)
    al.import_predictions(theirs, tmp_path / "imported")
    return tmp_path / "imported"


def test_imported_answers_are_judged_by_their_own_documents(imported, own_home):
    model = ScriptedJudge(holds)
    report = al.judge(
        al.open_run(imported), "grounded", model=model, known_answers=0, recordings=str(imported.parent / "recordings")
    )
    assert part("passages", model.received[0]) == "q00 is blue"
    assert len(report.result.judgements) == 24


def test_imported_answers_without_their_documents_cannot_be_judged_by_them(imported, own_home):
    (imported.parent / "theirs" / "corpus.jsonl").unlink()
    with pytest.raises(RunError, match="no turn has the passages"):
        al.judge(al.open_run(imported), "grounded", model=ScriptedJudge(holds))


@pytest.mark.parametrize("wrong", ["-1", "half", "1.5"])
def test_turns_are_counted_from_0_up(wrong, capsys):
    for option in ("--known-answers", "--suggest"):
        assert main(["judge", "run", option, wrong]) == 1
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1 and f"expected an integer >= 0, not {wrong!r}" in printed
