"""The sequential gate: its stops, its output, and its dependence on the order alone."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.report.gate_files import summary_lines
from agentlab.evals.stats.sequential import alarms, anytime_upper_bound, e_value_against_margin, planned_looks
from agentlab.lab.run import open_run
from support.small_runs import Answering, opened, play, write_set

EVERY = [(f"c{c:02}", t) for c in range(60) for t in range(2)]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A data set of sixty conversations, and the baseline of a flow that is always right."""
    folder = tmp_path_factory.mktemp("before")
    data = write_set(folder / "set", 60)
    write_baseline(play(data, folder / "run"), folder / "base.jsonl")
    return data, folder / "base.jsonl"


def gate(before, out, flow=None, *, lab=None, **options):
    data, baseline = before
    with opened(data, flow or Answering(), **(lab or {})) as open_lab:
        return open_lab.gate_sync(baseline, out=out, **options)


def played(run):
    return {row.conversation for row in run.folder.turns()}


def test_collapse_stops_the_run_at_the_first_look_and_reports_the_saving(before, tmp_path):
    run, verdict = gate(before, tmp_path / "run", Answering(wrong=EVERY))
    assert verdict.result == "regression" and "answer_f1 of answering 1.000 -> 0.000" in str(verdict)
    order = run.folder.header["sequential"]["order"]
    assert sorted(order) == [f"c{c:02}" for c in range(60)] != order
    assert played(run) == {*order[:17]}
    assert "stopped after 17 of 60 conversations" in verdict.stopped
    assert "saved 43 conversations, 86 model calls" in verdict.stopped


def test_stopped_run_lists_worse_measures_and_counts_the_rest(before, tmp_path):
    flow = Answering(wrong=EVERY, calls=lambda turn: 1 + (int(turn[0][1:]) % 5 == 0))
    _, verdict = gate(before, tmp_path / "run", flow)
    printed = summary_lines(verdict)
    assert printed[2].startswith("answer_f1 of answering 1.000 -> 0.000: worse beyond margin")
    assert printed[3] == "other primary measures: 1 undecided"


def test_equal_run_stops_when_a_loss_beyond_the_margin_is_excluded(before, tmp_path):
    margins = {"answer_f1": 0.2, "llm_calls": 0.2}
    run, verdict = gate(before, tmp_path / "run", margins=margins, lab={"stops": {"llm_calls": 2}})
    assert verdict.result == "unchanged" and verdict.exit_code == 0
    assert len(played(run)) == 15
    without, _ = gate(before, tmp_path / "without", margins=margins)
    assert len(played(without)) == 60, "a cost without a stop excludes no loss"
    whole, other = gate(before, tmp_path / "whole", margins={"answer_f1": 0.02})
    assert len(played(whole)) == 60 and other.result == "unchanged" and "nothing was saved" in other.stopped


def test_loss_within_a_margin_passes_and_beyond_it_regresses(before, tmp_path):
    few = [("c07", 0), ("c31", 1)]
    _, verdict = gate(before, tmp_path / "few", Answering(wrong=few), margins={"answer_f1": 0.3, "llm_calls": 0.3})
    assert verdict.result == "pass"
    half = [(name, turn) for name, turn in EVERY if int(name[1:]) % 2]
    _, verdict = gate(before, tmp_path / "half", Answering(wrong=half))
    assert verdict.result == "regression"
    assert 12 <= len(played(open_run(tmp_path / "half"))) < 60


class Late(Answering):
    """Flow in which later conversations end sooner."""

    async def respond(self, turn, session):
        for _ in range(60 - int(turn.text.split()[0][1:])):
            await asyncio.sleep(0)
        return await super().respond(turn, session)


def test_the_order_of_completion_decides_nothing(before, tmp_path):
    half = [(name, turn) for name, turn in EVERY if int(name[1:]) % 3 == 0]
    _, one = gate(before, tmp_path / "one", Late(wrong=half))
    _, many = gate(before, tmp_path / "many", Late(wrong=half), lab={"concurrency": 9})
    assert one.stopped.partition(";")[0] == many.stopped.partition(";")[0]
    results = [
        [(j.measure, j.verdict, j.loss, j.upper_bound) for j in verdict.primary_verdicts] for verdict in (one, many)
    ]
    assert results[0] == results[1]


def test_interrupted_gate_continues_and_is_not_decided_before(before, tmp_path):
    wrong = {"flow": Answering(wrong=EVERY)}
    run, stopped = gate(before, tmp_path / "run", **wrong, lab={"budget.calls": 9})
    assert stopped.result == "inconclusive" and "no verdict yet, --resume continues" in stopped.stopped
    stored = [row for row in run.folder.turns() if row.take == 0]
    run, verdict = gate(before, tmp_path / "run", **wrong, lab={"budget.calls": 900}, resume=True)
    _, straight = gate(before, tmp_path / "straight", **wrong)
    assert verdict.result == "regression" and verdict.stopped == straight.stopped
    assert all(row in run.folder.turns() for row in stored[:8])
    again, same = gate(before, tmp_path / "run", **wrong, lab={"budget.calls": 901}, resume=True)
    assert len(again.folder.turns()) == 34 and str(same) == str(verdict)
    for other in ({"looks": 3}, {"alpha": 0.01}, {"margins": {"answer_f1": 0.2}}):
        with pytest.raises(RunError, match="differs in that run"):
            gate(before, tmp_path / "run", **wrong, lab={"budget.calls": 902}, resume=True, **other)


def test_equal_turns_so_far_give_no_verdict(before, tmp_path):
    _, stopped = gate(before, tmp_path / "run", lab={"budget.calls": 20})
    assert stopped.result == "inconclusive" and stopped.exit_code == 3


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"limit": 5}, "data sets differ"),
        ({"scorers": ["similarity"]}, "graders differ"),
        ({"primary": ["llm_calls"]}, "primary measures are"),
        ({"flows": [Answering("other")]}, "the baseline has it"),
    ],
)
def test_incomparable_baseline_is_one_line_before_the_run(before, tmp_path, spec, says):
    data, baseline = before
    if spec.get("primary"):
        write_baseline(play(data, tmp_path / "p", primary=["answer_f1"]), baseline := tmp_path / "base.jsonl")
    with opened(data, *spec.pop("flows", [Answering()]), **spec) as lab, pytest.raises(RunError, match=says):
        lab.gate_sync(baseline, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_line_runs_a_spec_and_the_exit_code_is_the_verdict(before, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, _ = before
    flow = "import agentlab as al\n\n\nasync def respond(turn, session):\n    return al.Reply(text={!r})\n"
    (tmp_path / "flow.py").write_text(flow.format("blue"))
    spec = {"name": "s", "datasets": [str(data)], "flows": ["./flow.py"], "model": "scripted/none.yaml"}
    spec |= {"embedder": "hashing/hashing-64", "scorers": ["answer"], "primary": ["answer_f1", "failed"]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    (tmp_path / "none.yaml").write_text("replies: []\n")
    assert main(["run", "spec.yaml", "--out", "a"]) == 0
    assert main(["gate", "a", "--baseline", "base.jsonl", "--update"]) == 0
    (tmp_path / "flow.py").write_text(flow.format("no idea"))
    sequential = ["gate", "spec.yaml", "--sequential", "--baseline", "base.jsonl", "--out"]
    capsys.readouterr()
    assert main([*sequential, "b"]) == 2
    _, first, second = capsys.readouterr().out.splitlines()[:3]
    assert first.startswith("regression: answer_f1 of flow 1.000 -> 0.000")
    assert second.startswith("stopped after 17 of 60 conversations, alarm looked for 1 of 8 times; saved 43")
    assert json.loads((tmp_path / "b/gate.json").read_text())["stopped"] == second
    assert main(["gate", "a", "--sequential", "--baseline", "base.jsonl"]) == 1
    assert "--sequential needs a spec" in capsys.readouterr().err
    assert main(["gate", "spec.yaml", "--baseline", "base.jsonl"]) == 1
    assert "add --sequential to run that spec" in capsys.readouterr().err
    for option, value in (("--mode", "replay"), ("--looks", "3")):
        assert main(["gate", "a", "--baseline", "base.jsonl", option, value]) == 1
        assert f"{option} works with --sequential only" in capsys.readouterr().err
    assert main([*sequential, "c", "--looks", "0"]) == 1
    assert "looks is 0" in capsys.readouterr().err


def test_looks_begin_early_and_end_with_the_last_conversation():
    assert planned_looks(60, 8, 0.05) == [12, 15, 19, 23, 29, 36, 45, 60]
    assert planned_looks(1000, 8, 0.05)[0] == 12 and planned_looks(1000, 8, 0.05)[-2:] == [750, 1000]
    assert planned_looks(5, 5, 0.05) == [5] and planned_looks(60, 1, 0.05) == [60]
    assert planned_looks(60, 5, 0.001)[0] > 12, "a stricter gate begins later"


def test_look_does_not_depend_on_later_turns():
    random = np.random.default_rng(3)
    sums = random.normal(0.4, 1, (40, 6))
    # An alarm of the first look is an alarm of all: such a run does not cross again.
    sums[:12, 0] = 5.0
    whole = [*alarms(sums, [12, 18, 40], 40, 0.05)]
    assert [raised for _, raised in whole[:2]] == [True, False]
    for number, looks in enumerate(([12], [12, 18])):
        *_, (p, raised) = alarms(sums[: looks[-1]], looks, 40, 0.05)
        assert (p == whole[number][0]).all() and raised is whole[number][1]
    assert not any(raised for _, raised in alarms(np.zeros((12, 3)), [12], 40, 0.05))


@pytest.mark.slow
def test_false_alarms_over_all_looks_are_at_most_alpha():
    random, looks = np.random.default_rng(5), planned_looks(24, 8, 0.05)
    runs = [random.normal(0, 1, (24, 12)) * random.lognormal(0, 1, (24, 12)) for _ in range(300)]
    raised = [any(alarm for _, alarm in alarms(sums, looks, 24, 0.05)) for sums in runs]
    # At most .05, and two standard errors; not nearly never, either.
    assert 0.01 < sum(raised) / 300 <= 0.075


def test_e_values_exclude_what_is_far_and_nothing_where_nothing_is_known():
    zeros, ones = np.zeros(80), np.ones(80)
    needed = [n for n in range(1, 81) if e_value_against_margin(zeros[:n], ones[:n], 0.05, 1.0, 1.0) >= 20]
    assert needed[0] == 63  # 59 without the capital that is kept for other cases
    assert 0.039 < anytime_upper_bound(zeros, ones, 1.0, 1.0, 0.05) < 0.05
    assert anytime_upper_bound(zeros[:0], ones[:0], 1.0, 1.0, 0.05) == pytest.approx(1.0)
    assert e_value_against_margin(ones * 0.5, ones, 0.05, 1.0, 1.0) < 1.001
