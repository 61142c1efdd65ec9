"""Slices: only a slice that regressed while the total did not is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.paired import make_turn_tables, pair_measure
from agentlab.evals.compare.slices import significant_slices, slices_by_turn
from support.small_runs import RIGHT, Answering, play

KINDS = ("billing", "delivery", "returns", "talk", "damage")


@pytest.fixture
def data(tmp_path):
    """Forty conversations of two turns; eight of each kind, half in German, with tags on their turns."""
    folder = tmp_path / "set"
    folder.mkdir()
    rows = []
    for c in range(40):
        turns = [
            {"user": f"c{c:02} {t}", "reference_answers": [RIGHT], "metadata": {"tags": ["long"] if t else ["short"]}}
            for t in range(2)
        ]
        kind = {"category": KINDS[c % 5], "language": "de" if c % 2 else "en", "topic": f"topic {c}"}
        rows.append({"id": f"c{c:02}", "turns": turns, "metadata": kind})
    (folder / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def broken(*conversations):
    """Right and wrong in other slices cancel out: a loss in one slice equals the gains in the others."""
    return Answering(wrong=[(f"c{c:02}", t) for c in conversations for t in range(2)])


RETURNS = [c for c in range(40) if c % 5 == 2]
OTHERS = [c for c in range(40) if c % 5 in (0, 1)]


def test_gate_and_compare_name_a_regressed_slice_of_an_equal_total(data, tmp_path, capsys):
    before = play(data, tmp_path / "before", broken(*OTHERS[:8]), primary=["answer_f1", "failed"])
    write_baseline(before, tmp_path / "base.jsonl")
    after = play(data, tmp_path / "after", broken(*RETURNS), primary=["answer_f1", "failed"])
    capsys.readouterr()
    main(["gate", str(after.path), "--baseline", str(tmp_path / "base.jsonl")])
    out = capsys.readouterr().out.splitlines()
    named = "answer_f1 of answering 1 -> 0 in category returns (16 turns of 8 conversations)"
    assert any(named in line for line in out[:6]) and len(out) <= 22
    assert named in json.loads((after.path / "gate.json").read_text())["slices"][0]["says"]
    main(["compare", str(before.path), str(after.path)])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Undecided between answering (before) and answering (after)"
    assert out[1].endswith(": no difference shown in answer_f1, failed")
    assert out[2].startswith("in a slice only: answer_f1 of answering (after) against answering (before)")
    assert "in category" in out[2]
    main(["compare", str(before.path), str(after.path), "--json"])
    assert json.loads(capsys.readouterr().out)["slices"]


def test_slices_do_not_repeat_the_total(data, tmp_path, capsys):
    write_baseline(play(data, tmp_path / "before"), tmp_path / "base.jsonl")
    after = play(data, tmp_path / "after", broken(*range(40)))
    assert main(["gate", str(after.path), "--baseline", str(tmp_path / "base.jsonl")]) == 2
    assert "regression in a slice only" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flow", "slice_"),
    [
        (Answering(wrong=[(f"c{c:02}", 1) for c in range(0, 40, 5)]), "turn 2"),
        (Answering(wrong=[(f"c{c:02}", 1) for c in range(0, 40, 5)]), "tags long"),
        (broken(*range(1, 40, 5)), "category delivery"),
        (broken(*range(1, 16, 2)), "language de"),
    ],
)
def test_every_kind_of_slice_can_be_found(data, tmp_path, flow, slice_):
    before, after = play(data, tmp_path / "a"), play(data, tmp_path / "b", flow)
    a, b = make_turn_tables([before.turn_values["answering"], after.turn_values["answering"]])
    result = significant_slices(
        [("answering", pair_measure("answer_f1", a, b))], slices_by_turn(after), 0.05, two_sided=False
    )
    assert slice_ in [each.name for each in result]
    assert not any(each.name.startswith("topic") for each in result), "a key of forty values tells no kinds apart"


def test_equal_runs_rarely_name_a_slice():
    random = np.random.default_rng(5)
    places = {(f"c{c:02}", t): {f"turn {t + 1}", f"category {c % 4}"} for c in range(30) for t in range(2)}
    named = 0
    for _ in range(100):
        skill = random.random(30)
        rows = [{(c, t, 0): {"a": float(random.random() < skill[int(c[1:])])} for c, t in places} for _ in range(2)]
        named += bool(
            significant_slices([("flow", pair_measure("a", *make_turn_tables(rows)))], places, 0.05, two_sided=False)
        )
    assert named <= 9
