"""The recommendation names no flow that was shown to lose, and contradicts no pair."""

from __future__ import annotations

import json

import pytest

from agentlab.cli.parser import main
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from support.small_runs import WRONG, Answering, opened, play, write_set


def shown(run, capsys):
    assert main(["show", str(run.path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def turns(conversations):
    return [(f"c{c:02}", t) for c in range(conversations) for t in range(2)]


@pytest.mark.parametrize("conversations", [5, 20])
def test_ship_the_flow_that_beats_every_other_one(tmp_path, capsys, conversations):
    every = turns(conversations)
    flows = [Answering("one", wrong=every), Answering("two"), Answering("three", wrong=every)]
    told = shown(play(write_set(tmp_path / "set", conversations), tmp_path / "run", *flows), capsys)
    assert "Ship two: better in answer_f1." in told
    assert ("not told from the best in answer_f1: two (1.000) (3 flows" in told) == (conversations > 5)


def test_a_beaten_flow_is_no_choice(tmp_path, capsys):
    every = turns(20)
    flows = [Answering("one", wrong=every), Answering("two"), Answering("three", wrong=every), Answering("four")]
    told = shown(play(write_set(tmp_path / "set", 20), tmp_path / "run", *flows), capsys)
    assert "Undecided between two, four:" in told


def test_cheaper_is_not_shipped_while_a_loss_is_not_excluded(tmp_path, capsys):
    first = turns(20)[:18:2]
    flows = [
        Answering("one", wrong=first, calls=lambda turn: 4),
        Answering("two", calls=lambda turn: 2),
        Answering("three", wrong=first[:4]),
        Answering("four", wrong=first, calls=lambda turn: 3),
    ]
    data = write_set(tmp_path / "set", 20)
    told = shown(play(data, tmp_path / "run", *flows, primary=["answer_f1", "llm_calls"]), capsys)
    assert "Undecided: three is 50% fewer input tokens, 50% fewer calls; a loss of up to 0.249 in answer_f1" in told
    assert "if the two are equally good, 35 to 44 more conversations exclude 0.10 (4 times in 5)" in told


@pytest.mark.parametrize(("conversations", "ships"), [(20, False), (28, False), (29, True), (40, True)])
def test_equal_on_every_turn_is_shipped_from_29_conversations(tmp_path, capsys, conversations, ships):
    flows = [Answering("one", calls=lambda turn: 2), Answering("two")]
    told = shown(play(write_set(tmp_path / "set", conversations), tmp_path / "run", *flows), capsys)
    assert ("Ship two: 50% fewer input tokens, 50% fewer calls, a loss above 0." in told) is ships
    assert ("is not excluded; if the two are equally good," in told) is not ships


def test_a_better_and_dearer_flow_and_a_cheaper_one_are_a_trade(tmp_path, capsys):
    data = write_set(tmp_path / "set", 200)
    flows = [Answering("one", calls=lambda turn: 2), Answering("two", wrong=turns(200)[:20])]
    told = shown(play(data, tmp_path / "run", *flows), capsys)
    assert "Undecided, a trade: one is better in answer_f1; two is" in told
    assert "each excludes a loss of 0.10" in told


def test_constant_difference_needs_fewer_conversations(tmp_path, capsys):
    data = write_set(tmp_path / "set", 5)
    flows = [Answering("one"), Answering("two", calls=lambda turn: 2), Answering("three", wrong=turns(1))]
    told = shown(play(data, tmp_path / "run", *flows), capsys)
    assert "two against one: worse in llm_calls" in told and "show anything" not in told
    assert "5 conversations, too few to show a difference that varies from turn to turn (6 are the least)" in told
    told = shown(play(data, tmp_path / "alike", Answering("one"), flows[2]), capsys)
    assert "5 conversations, too few to show anything (6 are the least)" in told


def test_failures_of_ungraded_turns_are_seen(tmp_path):
    (data := tmp_path / "set").mkdir()
    rows = [
        {"id": c, "turns": [{"user": f"{c} 0", "reference_answers": [WRONG]}, {"user": f"{c} 1"}]}
        for c, number in turns(12)
        if not number
    ]
    (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_baseline(play(data, tmp_path / "before"), base := tmp_path / "base.jsonl")
    for few, result in ((0, "unchanged"), (2, "inconclusive"), (12, "regression")):
        flow = Answering(failing=[(f"c{c:02}", 1) for c in range(few)])
        verdict = gate(play(data, tmp_path / f"run{few}", flow), base)
        assert verdict.result == result and (not few or "failed of answering" in str(verdict))
        with opened(data, flow) as lab:
            _, stopping = lab.gate_sync(base, out=tmp_path / f"stopping{few}")
        assert stopping.result == result and (not few or "failed of answering" in str(stopping))
    chosen = {"primary": ["answer_f1", "llm_calls"]}
    write_baseline(play(data, tmp_path / "chosen", **chosen), base)
    assert gate(play(data, tmp_path / "again", flow, **chosen), base).result == "unchanged"
