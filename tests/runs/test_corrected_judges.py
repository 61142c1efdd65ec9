"""A judge decides by its label-corrected difference alone, and only with the number of labels fixed before."""

from __future__ import annotations

import json

import numpy as np
import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.compare.paired import make_turn_tables, pair_measure
from support.judges import ScriptedJudge

TURNS = 60


def kinder(reference, answer):
    """A judge that passes all replies of the polite flow, and is right about the other flow."""
    return "yes" if answer.startswith("Dear") or reference in answer else "no"


def play(tmp_path, name, polite_right, labels, fixed):
    rows = [{"id": f"c{n:02}", "turns": [{"user": f"{n}", "reference_answers": [f"Answer {n}"]}]} for n in range(TURNS)]
    if not (data := tmp_path / "set").exists():
        data.mkdir()
        (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    async def plain(turn, session):
        await session.complete(turn.text)
        return al.Reply(text=f"Answer {turn.text}" if int(turn.text) % 2 else "No idea")

    async def polite(turn, session):
        await session.complete(turn.text)
        return al.Reply(text=f"Dear user, Answer {turn.text}" if polite_right(int(turn.text)) else "Dear user, no idea")

    spec = {"primary": ["judge_correct", "llm_calls"], "embedder": "hashing/hashing-64", "labels": fixed}
    with al.Lab(flows=[plain, polite], datasets=[str(data)], model=al.Scripted(["x"], loop=True), **spec) as lab:
        run = lab.run_sync(out=tmp_path / name)
    if labels is not None:
        lines = ["conversation,turn,flow,label"]
        for row in run.turn_rows():
            number = int(row.conversation[1:])
            if number * 7 % TURNS < labels:
                lines.append(f"{row.conversation},0,{row.flow},{int(f'Answer {number}' in row.reply.text)}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    given = None if labels is None else tmp_path / f"{name}.csv"
    recordings = str(tmp_path / "recordings")
    report = al.judge(al.open_run(run.path), model=ScriptedJudge(kinder), recordings=recordings, labels=given)
    return al.open_run(run.path), report


def equally_often(number):
    return number % 2 == 0


def always(number):
    return True


@pytest.mark.parametrize(
    ("labels", "fixed", "truth", "kind", "decides"),
    [
        (None, 20, equally_often, "better", False),
        (12, 20, equally_often, "better", False),
        (20, 30, equally_often, "better", False),
        (30, 30, equally_often, "undecided", True),
        (60, 20, equally_often, "undecided", True),
        (60, 20, always, "better", True),
    ],
)
def test_a_kind_judge_is_corrected_or_is_secondary(tmp_path, capsys, labels, fixed, truth, kind, decides):
    run, report = play(tmp_path, "run", truth, labels, fixed)
    comparison = al.compare(run)
    (pair,) = comparison.pairs
    own = pair["judge_correct"]
    assert own.primary == decides == ("judge_correct" in comparison.primary)
    assert own.kind == kind
    assert main(["compare", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "Ship " not in out.replace("Ship none", "") or truth is always
    if decides:
        assert own.difference == pytest.approx(report.difference("plain", "polite").value, abs=1e-9)
        assert own.ci95 == pytest.approx(report.difference("plain", "polite").interval, abs=1e-9)
        assert "labelled turns correct" in str(report)
    else:
        assert f"secondary only: {labels or 0} of {fixed} turns have a label for every flow" in str(report)


def test_gate_corrects_by_the_labels_of_both_runs(tmp_path):
    before, _ = play(tmp_path, "before", equally_often, 60, 20)
    write_baseline(before, tmp_path / "base.jsonl")
    for name, labels, decides in (("without", None, False), ("with", 60, True)):
        run, _ = play(tmp_path, name, lambda number: False, labels, 20)
        verdict = gate(run, tmp_path / "base.jsonl", margins={"llm_calls": 1})
        (polite,) = [j for j in verdict.measure_verdicts if (j.flow, j.measure.name) == ("polite", "judge_correct")]
        assert polite.primary == decides
        assert (polite.kind == "worse") == decides, "the judge itself sees no loss"


@pytest.mark.slow
@pytest.mark.parametrize(("kind_to", "effect"), [(0.3, 0.0), (0.0, 0.0), (0.3, 0.3)])
def test_false_claims_of_a_kind_judge_keep_the_level(kind_to, effect):
    random, better, runs = np.random.default_rng(2), 0, 300
    for _ in range(runs):
        a, b = (random.random(80) < p for p in (0.5, 0.5 + effect))
        judge_a, judge_b = a ^ (random.random(80) < 0.2), b ^ (random.random(80) < 0.2)
        judge_b |= random.random(80) < kind_to
        labelled = random.permutation(80)[:40]
        sides = []
        for truth, text in ((a, judge_a), (b, judge_b)):
            rows = {(f"c{n:02}", 0, 0): {"judge_correct": float(text[n])} for n in range(80)}
            for n in labelled:
                rows[f"c{n:02}", 0, 0]["label_correct"] = float(truth[n])
            sides.append(rows)
        paired = pair_measure("judge_correct", *make_turn_tables(sides))
        better += paired.corrected.p_value() > 0.975
    if effect:
        assert better / runs > 0.5
    else:
        assert better / runs <= 0.025 + 2 * (0.025 * 0.975 / runs) ** 0.5
