"""A judged run stays a run: it is compared, regraded and judged again, and shows the quality of its judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.evals.compare.pairs import compare
from agentlab.evals.judge.judge_report import JudgeReport
from agentlab.models.scripted import Scripted
from support.judges import ScriptedJudge, credulous, holds, part
from support.predictions import row, write_questions, write_rows

NAMES = [f"q{n:02}" for n in range(12)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(answers: dict[str, Any], references: list[str] | None = None, **more: Any) -> Path:
    """Two systems or more; each answers all questions by a function of the question."""
    folder = write_questions(Path("theirs"), {name: [f"{name} is blue"] for name in NAMES})
    if references:
        rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text().splitlines()]
        for conversation in rows:
            conversation["turns"][0]["reference_answers"] = references
        write_rows(folder / "conversations.jsonl", rows)
    write_rows(folder / "corpus.jsonl", [{"doc_id": name, "title": "", "text": f"{name} is blue"} for name in NAMES])
    texts = [row(system, name, tell(name), **more) for system, tell in answers.items() for name in NAMES]
    write_rows(folder / "predictions.jsonl", texts)
    return al.import_predictions(folder, "run").path


def judge_run(run: Path, model: Any, rubric: str = "correct", **options: Any) -> JudgeReport:
    return al.judge(al.open_run(run), rubric, model=model, recordings="recordings", **options)


def right(name: str) -> str:
    return f"{name} is blue"


def test_judged_import_can_be_regraded_and_judged_again(capsys):
    run = imported({"one": right, "two": lambda name: "red"})
    model = ScriptedJudge(holds)
    judge_run(run, model)
    before = al.open_run(run).table()
    assert before.loc["judge_correct"].to_list() == [1, 0]
    assert main(["score", "run"]) == 0
    assert "judge_correct was dropped; `agentlab judge run` adds it again from recordings" in capsys.readouterr().out
    assert len(al.open_run(run).turn_rows()) == len(NAMES) * 2
    request = len(model.received)
    judge_run(run, model)
    assert len(model.received) == request and al.open_run(run).table().equals(before)


def test_changed_reference_is_judged_again(tmp_path):
    run = imported({"one": right, "two": lambda name: "red"})
    model = ScriptedJudge(holds)
    judge_run(run, model, known_answers=0)
    imported_again = write_questions(Path("theirs"), {name: ["red"] for name in NAMES})
    assert main(["score", "run", "--scorer", "answer"]) == 0, imported_again
    judge_run(run, model, known_answers=0)
    assert al.open_run(run).table().loc["judge_correct"].to_list() == [0, 1]


def test_any_of_several_references_is_right_and_the_judge_sees_them_all():
    run = imported({"one": right, "two": lambda name: "azure"}, references=["blue", "azure"])
    model = ScriptedJudge(lambda reference, answer: "yes" if answer in reference.split("\nor: ") else "no")
    judge_run(run, model)
    assert al.open_run(run).table().loc["judge_correct"].to_list() == [0, 1]
    assert all(part("reference", request) == "blue\nor: azure" for request in model.received)


def test_empty_replies_are_worth_nothing_and_are_no_labels():
    """An empty reply scores 0 without a judge; without human labels a mean has no interval."""
    lazy = {name: "" if number % 3 == 0 else right(name) for number, name in enumerate(NAMES)}
    report = judge_run(imported({"one": right, "lazy": lazy.__getitem__}), ScriptedJudge(credulous))
    result = report.mean("lazy")
    assert (result.value, result.interval) == (pytest.approx(2 / 3), None)
    assert len(report.next_to_label(100)) == len(NAMES), "the other system's replies are still to be labelled"


def test_unreadable_judgement_is_unknown_and_affects_no_other(capsys):
    run = imported({"one": right, "two": lambda name: "it has 7 wheels"}, llm_calls=1)
    report = judge_run(
        run, ScriptedJudge(lambda reference, answer: "?" if "q03 is" in answer else "yes"), known_answers=0
    )
    assert "the 11 turns with a verdict for every flow; 1 turns are left out" in str(report)
    differences = {d.measure.name: d.verdict for d in compare(al.open_run(run)).pairs[0].differences}
    assert differences["judge_correct"] == "unknown" and differences["answer_f1"] == "B worse"
    assert main(["show", "run"]) == 0
    assert "Ship one: more often better in answer_correctness" in " ".join(capsys.readouterr().out.split())


def test_every_view_shows_agreement_beside_the_judge(capsys):
    run = imported({"one": right, "two": lambda name: "red"})
    rows = [f"{name},0,{flow},{int(flow == 'one')}" for name in NAMES for flow in ("one", "two")]
    Path("labels.csv").write_text("\n".join(["conversation,turn,flow,label", *rows, ""]))
    report = judge_run(run, ScriptedJudge(credulous), labels="labels.csv")
    assert report.mean("one").interval[1] == 1 and report.difference("one", "two").interval[0] == -1
    capsys.readouterr()
    for command in ("show", "compare"):
        assert main([command, "run"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "judge_correct by reader passes 8 of 8 (reference)" in printed and "8 of 8 (injection)" in printed
        assert "kappa 0.00" in printed and "two - one -1.000" in printed


def test_a_judge_that_calls_everything_partly_right_passes_everything():
    report = judge_run(
        imported({"one": right, "two": lambda name: "red"}), ScriptedJudge(lambda reference, answer: "partly")
    )
    counts = report.result.known_answer_results
    assert counts.pop("swapped") == (0, 0, 0), "there is neither name nor number in an answer"
    assert set(counts.values()) == {(8, 8, 0)}


def test_a_system_may_be_called_as_it_likes():
    run = imported({"stress": right, "known": lambda name: "red"})
    judge_run(run, ScriptedJudge(holds))
    assert al.open_run(run).table().loc["judge_correct"].to_list() == [1, 0]


def test_flow_without_a_search_is_judged_without_passages():
    folder = write_questions(Path("set"), {name: [f"{name} is blue"] for name in NAMES})
    write_rows(folder / "corpus.jsonl", [{"doc_id": name, "title": "", "text": f"{name} is blue"} for name in NAMES])

    async def searching(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text=(await session.retrieve(turn.text))[0].text)

    async def guessing(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text="It is blue.")

    flows = [searching, guessing]
    with al.Lab(model=Scripted(["x"]), flows=flows, datasets=folder, embedder="hashing/hashing-64") as lab:
        run = lab.run_sync(out="run").path
    model = ScriptedJudge(credulous)
    model.verdict = lambda reference, answer: "yes"
    judge_run(run, model, "grounded", known_answers=0)
    assert {part("passages", request) == "(none)" for request in model.received if "It is blue." in request} == {True}
    assert compare(al.open_run(run)).pairs[0]["judge_grounded"].verdict == "unchanged"
