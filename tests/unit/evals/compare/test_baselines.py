"""A baseline is the mean of its epochs, serves a stated number of gates, and is not chosen by its scores."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import mean_over_epochs, write_baseline
from agentlab.evals.compare.gate import evaluate_measures, gate
from agentlab.lab.run import open_run
from support.small_runs import play, write_set

FLOW = """
import agentlab as al

async def respond(turn, session):
    await session.complete(turn.text)
    return al.Reply(text={})
"""
LUCK = "'blue' if session.random.random() < .5 else 'no idea'"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a data set, a spec and a flow whose luck depends on the seed."""
    monkeypatch.chdir(tmp_path)
    write_set(tmp_path / "set", 20)
    (tmp_path / "flow.py").write_text(FLOW.format(LUCK))
    spec = {"name": "s", "datasets": ["set"], "flows": ["./flow.py"], "model": "scripted/yes.yaml"}
    spec |= {"embedder": "hashing/hashing-64", "scorers": ["answer"], "stops": {"llm_calls": 1}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec | {"generation": {"temperature": 1.0}}))
    (tmp_path / "yes.yaml").write_text("loop: true\nreplies: [fine]\n")
    return tmp_path


def run(name, *options):
    assert main(["run", "spec.yaml", "--out", name, *options]) == 0


def update(name, *options):
    return main(["gate", name, "--baseline", "base.jsonl", "--update", *options])


def test_best_of_several_is_refused_and_a_mean_of_several_is_not(project, capsys):
    run("first")
    run("second", "--set", "generation.seed=8")
    assert update("first") == update("first") == 0
    assert update("second") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "holds another run of these flows and settings" in error and "--epochs 2 or more" in error
    run("more", "--epochs", "3")
    assert update("more") == 0 == main(["gate", "more", "--baseline", "base.jsonl"])
    assert update("first") == 1
    (project / "flow.py").write_text(FLOW.format("'blue'"))
    run("changed")
    assert update("changed") == 0, "another flow is another configuration"
    run("hotter", "--set", "generation.temperature=.9")
    assert update("hotter") == 0


def test_the_same_run_under_other_graders_replaces_its_baseline(project):
    run("first", "--mode", "record")
    assert update("first") == 0
    run("again", "--mode", "replay", "--set", "scorers=[answer, rouge]")
    assert update("again") == 0 == main(["gate", "again", "--baseline", "base.jsonl"])
    run("second", "--set", "generation.seed=8", "--set", "scorers=[answer]")
    assert update("second") == 1, "another run under other graders is still another run"


def test_gates_with_a_change_are_counted_beside_the_baseline(project, capsys):
    run("first")
    assert update("first", "--gates", "2") == 0
    served = project / "base.jsonl.served"
    assert main(["gate", "first", "--baseline", "base.jsonl"]) == 0
    assert not served.exists(), "a gate without a change cannot raise an alarm"
    for number in (1, 2, 2, 3):
        if not (project / f"r{number}").exists():
            run(f"r{number}", "--set", f"generation.seed={number}")
        capsys.readouterr()
        main(["gate", f"r{number}", "--baseline", "base.jsonl"])
        out = " ".join(capsys.readouterr().out.split())
        assert "false alarms: at most 0.025 in this gate and 0.05 in all 2 together" in out
        assert f"this baseline (one run) has served {number} of 2 gates" in out
        assert ("so the rate is 0.075: make a new one" in out) == (number == 3)
    assert json.loads((project / "r3" / "gate.json").read_text())["served"] == 3
    (project / "flow.py").write_text(FLOW.format("'blue'"))
    run("changed")
    assert update("changed") == 0
    (project / "flow.py").write_text(FLOW.format(LUCK))
    run("again")
    assert gate(open_run(project / "again"), project / "base.jsonl").served == 1, "a new baseline starts at 0"


def test_unwritable_count_is_reported_and_the_gate_has_its_verdict(project, capsys):
    run("first")
    assert update("first") == 0
    (project / "base.jsonl.served").mkdir()
    run("other", "--set", "generation.seed=3")
    assert main(["gate", "other", "--baseline", "base.jsonl"]) in (2, 3)
    assert "cannot count its gates" in " ".join(capsys.readouterr().out.split())


def test_number_of_gates_is_fixed_with_the_baseline(project, capsys):
    run("first")
    assert update("first", "--gates", "0") == 1
    assert "from 1 to 100" in capsys.readouterr().err


def test_baseline_without_a_number_serves_five_gates(tmp_path):
    data = write_set(tmp_path / "set", 8)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "b.jsonl")
    shutil.copy(tmp_path / "b.jsonl", tmp_path / "old.jsonl")
    lines = (tmp_path / "b.jsonl").read_text().splitlines()
    header = {name: value for name, value in json.loads(lines[0]).items() if name not in ("gates", "check")}
    (tmp_path / "old.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    assert gate(play(data, tmp_path / "run"), tmp_path / "old.jsonl").gates == 5


def test_one_run_is_gated_against_the_mean_of_several_epochs(project):
    run("five", "--epochs", "5")
    assert update("five") == 0
    run("one", "--set", "generation.seed=40")
    assert main(["gate", "one", "--baseline", "base.jsonl"]) in (0, 3)
    report = json.loads((project / "one" / "gate.json").read_text())
    (f1,) = [row for row in report["measures"] if row["measure"] == "answer_f1"]
    assert report["epochs"] == 5 and f1["n"] == 40 and 0.3 < f1["baseline"] < 0.7
    assert main(["gate", "spec.yaml", "--sequential", "--baseline", "base.jsonl", "--out", "seq"]) in (0, 3)
    with pytest.raises(RunError, match="gates is 101"):
        write_baseline(open_run(project / "one"), project / "x.jsonl", gates=101)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_mean_over_epochs_keeps_means_and_unknown_values(epochs):
    rows = {("c", turn, epoch): {"m": v} for epoch, own in enumerate(epochs) for turn, v in enumerate(own)}
    means = mean_over_epochs({"flow": rows})["flow"]
    assert [*means] == [("c", turn, 0) for turn in range(3)]
    assert np.allclose([row["m"] for row in means.values()], np.mean(epochs, axis=0))
    rows["c", 0, 0] = {"m": None}
    assert mean_over_epochs({"flow": rows})["flow"]["c", 0, 0]["m"] is None


@pytest.mark.slow
@pytest.mark.parametrize("luck", ["mean of five", "one run"])
def test_false_alarms_over_five_gates_keep_the_level(luck):
    random = np.random.default_rng(1)
    alarms, each, runs = 0, 0, 300

    def played(chance, epochs=1):
        right = random.random((epochs, 40, 4)) < chance[:, None]
        cells = np.ndenumerate(right)
        return mean_over_epochs({"flow": {(f"c{c:02}", t, e): {"answer_f1": float(v)} for (e, c, t), v in cells}})

    for _ in range(runs):
        chance = random.beta(4, 1, 40)
        base = played(chance, 5 if luck == "mean of five" else 1)
        verdicts = [evaluate_measures(base, played(chance), {}, 0.05, ["answer_f1"], gates=5)[0][0] for _ in range(5)]
        worse = [verdict.kind == "worse" for verdict in verdicts]
        alarms, each = alarms + any(worse), each + sum(worse)
    assert alarms / runs <= 0.05 + 2 * (0.05 * 0.95 / runs) ** 0.5
    assert each / runs / 5 <= 0.02
