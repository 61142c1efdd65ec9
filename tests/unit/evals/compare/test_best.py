"""Flows that no other flow was shown to beat, and the sentence that names them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.evals.compare.best import best
from agentlab.evals.compare.paired import make_turn_tables
from support.small_runs import Answering, play, write_set

NAMES = ["a", "b", "c", "d", "e"]


def best_of(values, decide=("answer_f1", "llm_calls")):
    """`values`: of each flow the columns of its measures, a number a conversation."""
    flows = []
    for columns in values:
        rows = zip(*columns, strict=True)
        flows.append({(f"c{n:02}", 0, 0): dict(zip(decide, row, strict=True)) for n, row in enumerate(rows)})
    return best(dict(zip(NAMES, make_turn_tables(flows), strict=False)), decide)


def drawn(means, size=40, seed=1, noise=0.1):
    random = np.random.default_rng(seed)
    shared = random.normal(0, 0.2, size)
    return [[mean + shared + random.normal(0, noise, size), np.ones(size)] for mean in means]


def test_best_flow_is_named():
    found = best_of(drawn([0.5, 0.9, 0.3]))
    assert [(place.flow, place.is_best) for place in found.places] == [("b", True), ("a", False), ("c", False)]
    assert str(found).startswith("best in answer_f1 of 3 flows: b (0.8")


def test_alike_flows_are_all_among_the_best():
    found = best_of(drawn([0.5] * 5))
    assert all(place.is_best for place in found.places)
    assert str(found).startswith("no primary quality separates the 5 flows")


def test_recommendation_names_an_unbeaten_flow():
    found = best_of(drawn([0.8, 0.8, 0.2]))
    assert [place.is_best for place in found.places] == [True, True, False]
    assert " or " in str(found) and "no difference shown" in str(found)


@pytest.mark.slow
def test_equal_flows_rarely_differ():
    told = sum(not all(place.is_best for place in best_of(drawn([0.5] * 5, 15, seed)).places) for seed in range(100))
    assert told <= 9


def test_costs_unknown_values_and_single_turns_have_no_best_flow():
    assert best_of([[[1.0], [1.0]]] * 3, ("cost_usd", "llm_calls")) is None
    assert best_of([[[None, 1.0], [1.0, 1.0]]] * 3) is None
    alone = best_of([[[0.5], [1.0]], [[0.7], [1.0]], [[0.2], [1.0]]])
    assert all(place.is_best for place in alone.places)


def test_compare_prints_the_best_first_and_all_in_json(tmp_path, capsys):
    wrong = [(f"c{c:02}", t) for c in range(12) for t in range(2)]
    data, flows = write_set(tmp_path / "set", 12), [Answering("one"), Answering("two", wrong=wrong), Answering("three")]
    run = play(data, tmp_path / "run", *flows)
    assert main(["compare", str(run.path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "best in answer_f1 of 3 flows: one (1.000) or three (1.000), no difference shown"
    assert main(["compare", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["best"]
    assert found["flows"][2] == {"flow": "two", "mean": 0.0, "is_best": False}
    assert main(["compare", str(run.path), "--flow", "one", "--flow", "two", "--json"]) == 0
    assert "best" not in json.loads(capsys.readouterr().out)
