"""Too little, unknown and unlike data: compare and both gates give a defined verdict, or one line."""

from __future__ import annotations

import math

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.pairs import compare
from support.small_runs import Answering, opened, play, write_set

ODD = '''"""Knows no answer to some turns."""

from agentlab.evals.scorers import Score


def metrics(turn):
    return ("odd",)


def score(turn, outcome):
    return {"odd": Score(value=float("nan") if turn.user in {UNKNOWN} else 1.0, reason="")}
'''


def both(data, base, out, *flows, **spec):
    """Return the verdicts of the plain gate and of the sequential gate."""
    with opened(data, *flows, **spec) as lab:
        _, stopping = lab.gate_sync(base, out=out / "stopping")
    return gate(play(data, out / "whole", *flows, **spec), base), stopping


@pytest.mark.parametrize("conversations", [1, 3, 4])
@pytest.mark.parametrize("wrong", [False, True])
def test_very_few_conversations_have_a_verdict_of_their_own(tmp_path, capsys, conversations, wrong):
    data = write_set(tmp_path / "set", conversations)
    every = [(f"c{c:02}", t) for c in range(conversations) for t in range(2)]
    before = play(data, tmp_path / "before")
    write_baseline(before, tmp_path / "base.jsonl")
    verdicts = both(data, tmp_path / "base.jsonl", tmp_path, Answering(wrong=every if wrong else ()))
    # Four that lost the same on every turn are shown, by `constant_shift_p_value` and one-sided; fewer are not.
    expected = "unchanged" if not wrong else "inconclusive" if conversations < 4 else "regression"
    assert [verdict.result for verdict in verdicts] == [expected] * 2
    assert main(["compare", str(before.path), str(tmp_path / "whole")]) == 0
    out = capsys.readouterr().out
    assert ": no difference shown in answer_f1, llm_calls" in out and "better in" not in out


def test_one_conversation_and_three_flows_can_be_compared(tmp_path, capsys):
    data = write_set(tmp_path / "set", 1)
    run = play(data, tmp_path / "run", Answering("a"), Answering("b"), Answering("c", wrong=[("c00", 0)]))
    assert main(["compare", str(run.path), "--all", "--improves", "llm_calls"]) == 0
    assert (
        "no difference between the flows shown in a primary quality (3 flows, 1 conversation)"
        in capsys.readouterr().out
    )


def test_unknown_score_is_no_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = write_set(tmp_path / "set", 20)
    spec = {"scorers": ["./odd.py", "answer"], "primary": ["odd", "answer_f1"]}
    scorer = tmp_path / "odd.py"
    # The file is the same on both sides, so the grader is, too; what it knows is read while it grades.
    scorer.write_text(ODD.replace("{UNKNOWN}", '__import__("pathlib").Path("unknown.txt").read_text().splitlines()'))
    (tmp_path / "unknown.txt").write_text("")
    before = play(data, tmp_path / "before", **spec)
    write_baseline(before, tmp_path / "base.jsonl")
    (tmp_path / "unknown.txt").write_text("c03 1\n")
    whole, stopping = both(data, "base.jsonl", tmp_path, **spec)
    for verdict in (whole, stopping):
        (odd,) = [each for each in verdict.measure_verdicts if each.measure.name == "odd"]
        assert odd.verdict == "undecided" and odd.why == "undecided: unknown in this run, known in the baseline"
        assert verdict.result == "inconclusive"
    assert main(["compare", "before", "whole"]) == 0
    (pair,) = compare(before, play(data, tmp_path / "again", **spec)).pairs
    assert pair["odd"].verdict == "unknown" and pair["answer_f1"].verdict == "unchanged"
    write_baseline(play(data, tmp_path / "nan", **spec), tmp_path / "nan.jsonl")
    with pytest.raises(RunError, match="no primary measure is left"):
        gate(before, tmp_path / "nan.jsonl", margins={"answer_f1": math.inf})


def test_a_measure_that_is_missing_in_one_run_is_one_line(tmp_path, capsys):
    data = write_set(tmp_path / "set", 6)
    play(data, tmp_path / "a", scorers=["answer", "similarity"])
    play(data, tmp_path / "b", scorers=["answer"])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    printed = capsys.readouterr().err
    assert "the graders differ (similarity)" in printed and printed.count("\n") == 1
