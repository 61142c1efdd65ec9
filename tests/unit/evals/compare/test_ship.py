"""The recommendation names no flow that was shown to lose, and contradicts no pair."""

from __future__ import annotations

import json

import pytest

from agentlab.cli.parser import main
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.headline import recommend
from agentlab.evals.compare.pairs import compare
from support.small_runs import WRONG, Answering, opened, play, write_set

STEPS = """
from agentlab.evals.scorers import Score

def metrics(turn):
    return ("memory_restraint",)

def score(turn, outcome):
    return {"memory_restraint": Score(value=float(outcome.reply.text == "blue"), reason="its search")}
"""


def terminal_text(run, capsys):
    assert main(["show", str(run.path), "--all"]) == 0
    return " ".join(capsys.readouterr().out.split())


def turns(conversations):
    return [(f"c{c:02}", t) for c in range(conversations) for t in range(2)]


@pytest.mark.parametrize("conversations", [5, 20])
def test_ship_the_flow_that_beats_every_other_one(tmp_path, capsys, conversations):
    every = turns(conversations)
    flows = [Answering("one", wrong=every), Answering("two"), Answering("three", wrong=every)]
    printed = terminal_text(play(write_set(tmp_path / "set", conversations), tmp_path / "run", *flows), capsys)
    first = "Ship two: better in answer_f1" if conversations > 5 else "Undecided: 5 conversations can show nothing"
    assert printed.startswith(first) and ("better in" in printed) is (conversations > 5)
    assert conversations == 5 or ("best in answer_f1, or not shown worse: two (1.000)" in printed)


def test_a_dominated_flow_is_no_choice(tmp_path, capsys):
    every = turns(20)
    flows = [Answering("one", wrong=every), Answering("two"), Answering("three", wrong=every), Answering("four")]
    printed = terminal_text(play(write_set(tmp_path / "set", 20), tmp_path / "run", *flows), capsys)
    assert printed.startswith("Undecided between two and four")
    assert "what would decide: at least 20 more conversations" in printed and "a loss of up to" not in printed


def test_cheaper_is_not_shipped_while_a_loss_is_not_excluded(tmp_path, capsys):
    first = turns(20)[:18:2]
    flows = [
        Answering("one", wrong=first, calls=lambda turn: 4),
        Answering("two", calls=lambda turn: 2),
        Answering("three", wrong=first[:4]),
        Answering("four", wrong=first, calls=lambda turn: 3),
    ]
    data = write_set(tmp_path / "set", 20)
    printed = terminal_text(play(data, tmp_path / "run", *flows, primary=["answer_f1", "llm_calls"]), capsys)
    assert printed.startswith("Ship none yet; three is the cheapest that is not shown worse ")
    assert (
        "* for three against two: 50% fewer input tokens; 50% fewer calls" in printed
        and "* the mean answer_f1 of three is lower, perhaps by chance (0." in printed
        and "this run excludes a loss above 0.249 in answer_f1 for three against the others" in printed
    )
    plan = (
        "at least 79 more conversations to exclude a loss of 0.1 in answer_f1 (20 so far), if three is as good as two"
    )
    assert plan in printed


@pytest.mark.parametrize(("conversations", "ships"), [(20, False), (28, False), (29, True), (40, True)])
def test_equal_on_every_turn_is_shipped_from_29_conversations(tmp_path, capsys, conversations, ships):
    flows = [Answering("one", calls=lambda turn: 2), Answering("two")]
    printed = terminal_text(play(write_set(tmp_path / "set", conversations), tmp_path / "run", *flows), capsys)
    assert printed.startswith("Ship two: 50% fewer input tokens, 50% fewer calls ") is ships
    assert ("a loss above 0.0" in printed) is ships
    assert printed.startswith("Ship none yet; two is the cheapest that is not shown worse: a loss of 0.1 ") is not ships
    assert "this run excludes a loss above 0." in printed


def test_a_better_and_dearer_flow_and_a_cheaper_one_are_a_trade(tmp_path, capsys):
    data = write_set(tmp_path / "set", 200)
    flows = [Answering("one", calls=lambda turn: 2), Answering("two", wrong=turns(200)[:20])]
    printed = terminal_text(play(data, tmp_path / "run", *flows), capsys)
    assert printed.startswith("Undecided, a trade: one is better in answer_f1, two is 50% fewer input tokens ")


def test_what_a_run_could_miss_is_among_the_first_bullets_of_every_headline(tmp_path):
    data, few = write_set(tmp_path / "set", 60), write_set(tmp_path / "few", 20)
    cases = {
        "cheapest": (few, [Answering("one", calls=lambda turn: 2), Answering("two", wrong=turns(5)[::2])]),
        "ship": (data, [Answering("one", wrong=turns(1), calls=lambda turn: 2), Answering("two", wrong=turns(2)[2:])]),
        "failing": (
            few,
            [Answering("one", wrong=turns(5)[::2]), Answering("two", failing=turns(9)), Answering("three")],
        ),
        "undecided": (few, [Answering("one", wrong=turns(5)), Answering("two", wrong=turns(10)[10:])]),
    }
    for kind, (data, flows) in cases.items():
        verdict, _ = recommend(play(data, tmp_path / kind, *flows))
        assert verdict.kind == kind
        (position,) = (n for n, note in enumerate(verdict.notes) if note.startswith("This run could miss differences"))
        assert position < 3 and "in answer_f1" in verdict.notes[position]
        excluded = [n for n, note in enumerate(verdict.notes) if "excludes a loss above" in note]
        assert all(position < other for other in excluded) and (excluded or kind not in ("cheapest", "ship"))
    equal, _ = recommend(play(data, tmp_path / "equal", Answering("one"), Answering("two")))
    assert not [note for note in equal.notes if "could miss" in note], "nothing differs"


def test_what_would_decide_names_the_flow_that_is_still_open(tmp_path):
    data = write_set(tmp_path / "set", 30)
    cheap, rival = Answering("cheap", wrong=turns(5)[::2]), Answering("rival", calls=lambda turn: 2)
    shown_worse = Answering("shown_worse", wrong=turns(30), calls=lambda turn: 2)
    for number, flows in enumerate(([cheap, shown_worse, rival], [cheap, rival, shown_worse])):
        verdict, _ = recommend(play(data, tmp_path / f"run{number}", *flows))
        (plan,) = (note for note in verdict.notes if note.startswith("what would decide"))
        assert plan.endswith("in answer_f1 (30 so far), if cheap is as good as rival")
    failing = Answering("failing", failing=turns(30)[:20], calls=lambda turn: 2)
    verdict, _ = recommend(play(data, tmp_path / "fails", cheap, failing, rival))
    (plan,) = (note for note in verdict.notes if note.startswith("what would decide"))
    assert plan.endswith("if cheap is as good as rival"), "a flow that fails is fixed first"


@pytest.mark.parametrize("conversations", [5, 6])
def test_nothing_is_called_better_below_six_conversations_that_differ(tmp_path, capsys, conversations):
    flows = [Answering("one"), Answering("two", calls=lambda turn: 2, wrong=turns(conversations))]
    for number, data in enumerate((conversations, 20)):
        run = play(write_set(tmp_path / f"set{number}", data), tmp_path / f"run{number}", *flows)
        compared = compare(run).pairs[0]["answer_f1"]
        assert compared.is_shown is (conversations == 6), "whole or among equal ones"
    assert ("worse in answer_f1" in terminal_text(run, capsys)) is (conversations == 6)


def test_a_flow_that_fails_is_named_first_and_is_never_cheapest(tmp_path, capsys):
    failing = turns(20)[:15]
    flows = [
        Answering("steady", calls=lambda turn: 2),
        Answering("flaky", failing=failing),
        Answering("slow", calls=lambda turn: 3),
    ]
    run = play(write_set(tmp_path / "set", 20), tmp_path / "run", *flows)
    printed = terminal_text(run, capsys)
    assert printed.startswith("flaky fails 15 of 40 turns: fix it first ")
    assert "without flaky: Ship none yet; steady is the cheapest" in printed or "without flaky: Ship steady" in printed
    assert "flaky is the cheapest" not in printed and "Ship flaky" not in printed


@pytest.mark.parametrize(
    ("right", "usable", "headline"),
    [
        (0, 0.2, "None is usable: 0 of 42 right"),
        (0, 0.0, "None"),
        (2, 0.9, "None is usable: 2 of 42 right"),
        (42, 0.2, "No difference between"),
    ],
)
def test_nothing_below_the_floor_is_recommended(tmp_path, capsys, right, usable, headline):
    wrong = turns(21)[right:]
    flows = [Answering("one", wrong=wrong), Answering("two", wrong=wrong)]
    run = play(write_set(tmp_path / "set", 21), tmp_path / "run", *flows, usable=usable)
    assert terminal_text(run, capsys).startswith(headline)


def test_an_unusable_flow_is_not_shipped_beside_a_usable_one(tmp_path, capsys):
    flows = [Answering("dear", calls=lambda turn: 3), Answering("useless", wrong=turns(30))]
    printed = terminal_text(play(write_set(tmp_path / "set", 30), tmp_path / "run", *flows), capsys)
    assert printed.startswith("Ship dear: better in answer_f1 ") and "* useless is not usable: 0 of 60 right" in printed


def test_one_headline_opens_every_surface(tmp_path, capsys):
    flows = [Answering("one", calls=lambda turn: 2), Answering("two")]
    run = play(write_set(tmp_path / "set", 20), tmp_path / "run", *flows)
    headline = "Ship none yet; two is the cheapest that is not shown worse: a loss of 0.1 by two is not excluded"
    assert recommend(run)[0].sentence == headline and recommend(run)[0].kind == "cheapest"
    assert main(["gate", str(run.path), "--baseline", str(tmp_path / "base.jsonl"), "--update"]) == 0
    capsys.readouterr()
    gated = ["gate", str(run.path), "--baseline", str(tmp_path / "base.jsonl")]
    for command in (["show", str(run.path)], ["compare", str(run.path)], gated):
        assert main(command) in (0, 3)
        assert capsys.readouterr().out.splitlines()[0] == headline, command
    assert run._views.markdown().startswith(f"**{headline}**")
    assert f'"sentence":"{headline}"' in run.report().text


def test_a_measure_of_a_step_ships_nothing_in_green(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text(STEPS)
    flows = [Answering("right"), Answering("wrong", wrong=turns(40))]
    data = write_set(tmp_path / "set", 40)
    printed = terminal_text(
        play(data, tmp_path / "run", *flows, scorers=["./steps.py"], primary=["memory_restraint", "llm_calls"]), capsys
    )
    assert printed.startswith("Ship none yet; right is the cheapest that is not shown worse: only a step or the cost ")
    assert "what would decide: a measure of the answer" in printed and "Ship right" not in printed


def test_the_measure_that_one_conversation_grades_would_decide(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graded = STEPS.replace('("memory_restraint",)', '("memory_restraint",) if turn.user.startswith("c00") else ()')
    (tmp_path / "steps.py").write_text(graded)
    flows = [Answering("cheap"), Answering("dear", wrong=turns(20)[1:4], calls=lambda turn: 2)]
    data, primary = write_set(tmp_path / "set", 20), ["answer_f1", "memory_restraint"]
    printed = terminal_text(
        play(data, tmp_path / "run", *flows, scorers=["answer", "./steps.py"], primary=primary), capsys
    )
    assert printed.startswith("Ship none yet; cheap is the cheapest ")
    assert "what would decide: more conversations that grade memory_restraint, 1 conversation so far" in printed


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


def test_a_long_conversation_that_the_sample_left_out_keeps_a_flow_from_being_shipped(tmp_path, capsys):
    data = write_set(tmp_path / "set", 40)
    flows = [Answering("one", calls=lambda turn: 2), Answering("two")]
    assert terminal_text(play(data, tmp_path / "short", *flows, limit=39), capsys).startswith("Ship two")
    long = {"id": "long", "turns": [{"user": f"c39 {number}"} for number in range(30)]}
    with (data / "conversations.jsonl").open("a") as file:
        file.write(json.dumps(long) + "\n")
    printed = terminal_text(play(data, tmp_path / "sample", *flows, limit=39), capsys)
    assert printed.startswith("Ship none yet") and "this run excludes a loss above 0." in printed


def dominations(tmp_path, conversations, *flows, **spec):
    run = play(
        write_set(tmp_path / f"set{conversations}", conversations), tmp_path / f"run{conversations}", *flows, **spec
    )
    return [note for note in recommend(run)[0].notes if "dominated" in note]


@pytest.mark.parametrize(("conversations", "dominated"), [(20, False), (60, True)])
def test_dominated_is_worse_in_one_measure_while_the_other_flow_passes_in_all_else(tmp_path, conversations, dominated):
    every = turns(conversations)
    flows = [Answering("poor", wrong=every[::3], calls=lambda turn: 2), Answering("good"), Answering("same")]
    notes = dominations(tmp_path, conversations, *flows, primary=["answer_f1", "failed", "llm_calls"])
    passes = "poor is dominated by good: worse in answer_f1, llm_calls, and good passes in failed"
    assert notes == ([passes] if dominated else [])


def test_worse_but_cheaper_or_equally_expensive_is_not_dominated(tmp_path):
    every, spec = turns(40), {"primary": ["answer_f1", "llm_calls"]}
    good = Answering("good", calls=lambda turn: 2)
    assert not dominations(tmp_path, 40, good, Answering("poor", wrong=every), Answering("bad", wrong=every), **spec)
    equal = [Answering("good"), Answering("poor", wrong=turns(41)), Answering("same")]
    assert not dominations(tmp_path, 41, *equal, **spec), "without a stop no cost passes"
    equal = [Answering("good"), Answering("poor", wrong=turns(42)), Answering("same")]
    (note,) = dominations(tmp_path, 42, *equal, stops={"llm_calls": 2}, **spec)
    assert note == "poor is dominated by good: worse in answer_f1, and good passes in llm_calls"
