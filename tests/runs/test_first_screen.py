"""The numbers below the headline: their order, what they mean, and what counts in none of them."""

from __future__ import annotations

import json

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.evals.compare.headline import recommend
from support.paths import ROOT
from support.small_runs import Answering, play, write_set

FULL, HALF, NONE = "red green blue white", "red green", "seven"


def imported(folder, answers):
    """Import answers of systems to questions with the reference `FULL`; token F1 gives `HALF` two thirds."""
    folder.mkdir()
    rows = [{"id": f"c{n}", "turns": [{"user": f"{n}", "reference_answers": [FULL]}]} for n in range(12)]
    (folder / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = [
        {"system": system, "conversation": f"c{n}", "turn": 0, "answer": text}
        for system, texts in answers.items()
        for n, text in enumerate(texts)
    ]
    (folder / "predictions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return al.import_predictions(folder, folder / "run", scorers=["answer"], primary=["answer_f1"])


@pytest.mark.parametrize("differ", [True, False])
def test_flows_are_ordered_by_the_mean_and_another_leader_by_count_is_named(tmp_path, differ):
    """`partly` has 9 right of 12 and a mean of .5; `whole` has a higher mean."""
    partly, whole = [HALF] * 9 + [NONE] * 3, [FULL] * (7 if differ else 10) + [NONE] * (5 if differ else 2)
    verdict, _ = recommend(imported(tmp_path / "set", {"partly": partly, "whole": whole}))
    assert [(each.flow, each.right) for each in verdict.numbers] == [
        ("whole", "7/12" if differ else "10/12"),
        ("partly", "9/12"),
    ]
    leaders = "most often right: partly; highest mean, which tests compare: whole"
    assert (leaders in verdict.legend) is differ
    assert verdict.legend.startswith("right: answer_f1 of .5 or more; mean: 0 to 1 [95 %]")


def test_undecided_turns_are_counted_below_the_numbers(own_home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    undecided = "4 of chatbox, 2 of chatbox_native, 4 of chatbox_no_memory, 2 of discord, 2 of coordinator"
    for name, expected in (("assistant", undecided), ("laws", "")):
        run = al.Lab(f"evals/recorded/{name}.yaml", mode="replay").run_sync(out=tmp_path / name)
        verdict, _ = recommend(run)
        assert verdict.legend.endswith(f"; not decided and not counted: {expected}" if expected else "[95 %]")
        assert not [each for each in verdict.numbers if "not decided" in f"{each.right} {each.mean}"]
    (plan,) = (note for note in verdict.notes if note.startswith("what would decide"))
    assert "in refusal_accuracy (4 so far), if rag_only is as good as tools_rag_fallback" in plan, (
        "tools is shown worse"
    )
    assert "* weak point of rag_only: declines 19 of 31 turns that it could answer" in [f"* {n}" for n in verdict.notes]


def test_a_measure_that_failed_turns_replace_is_named_on_every_surface(own_home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)

    async def flaky(turn, session):
        raise TimeoutError("no response within 5 seconds")

    rag_only = {"flow": "rag_only", "retrieval_decision": "words", "markers_in_history": True}
    with al.Lab("evals/recorded/laws.yaml", mode="replay", flows=[rag_only, flaky]) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    clause = "failed turns replace lookup_accuracy in the verdict"
    assert "lookup_accuracy" not in recommend(run)[1].primary
    assert main(["show", str(run.path)]) == 0
    assert clause in capsys.readouterr().out and clause in run.report().text
    assert clause in run._views.markdown()
    data = write_set(tmp_path / "set", 20)
    failing = [Answering("one"), Answering("two", failing=[("c00", 0)])]
    assert "replace" not in recommend(play(data, tmp_path / "few", *failing))[0].legend, "nothing else is graded"
    named = play(data, tmp_path / "named", *failing, primary=["answer_f1", "failed"])
    assert "replace" not in recommend(named)[0].legend
