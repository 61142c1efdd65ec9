"""Flows that no test separates from the best, and the sentence that names them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agentlab.cli.parser import main
from agentlab.evals.compare.best import best
from agentlab.evals.compare.paired import make_turn_tables
from support.small_runs import Answering, play, write_set

NAMES = ["a", "b", "c", "d", "e"]


def best_of(values, primary=("answer_f1", "llm_calls")):
    """Return the best flows; `values` has a row for each flow, with a column of conversations for each measure."""
    flows = []
    for columns in values:
        rows = zip(*columns, strict=True)
        flows.append({(f"c{n:02}", 0, 0): dict(zip(primary, row, strict=True)) for n, row in enumerate(rows)})
    return best(dict(zip(NAMES, make_turn_tables(flows), strict=False)), primary)


def drawn(means, size=40, seed=1, noise=0.1):
    random = np.random.default_rng(seed)
    shared = random.normal(0, 0.2, size)
    return [[mean + shared + random.normal(0, noise, size), np.ones(size)] for mean in means]


def best_in(outcome, name="answer_f1"):
    (flows,) = [flows for quality, flows in outcome.sets.items() if quality.name == name]
    return [flow.flow for flow in flows if flow.is_best]


def test_best_flow_is_named():
    outcome = best_of(drawn([0.5, 0.9, 0.3]))
    assert best_in(outcome) == ["b"]
    assert str(outcome).startswith("best in answer_f1, or not shown worse: b (0.8")
    assert str(outcome).endswith("(3 flows, 40 conversations, error at most 0.05)")


def test_alike_flows_are_all_among_the_best():
    outcome = best_of(drawn([0.5] * 5))
    assert len(best_in(outcome)) == 5
    assert str(outcome) == "no difference between the flows shown in a primary quality (5 flows, 40 conversations)"


def test_several_flows_can_be_the_best():
    assert {*best_in(best_of(drawn([0.8, 0.8, 0.2])))} == {"a", "b"}


def test_each_quality_has_its_own_set():
    turns = np.random.default_rng(3).normal(0, 0.05, 40)
    outcome = best_of(
        [[0.9 + turns, 0.2 + turns[::-1]], [0.2 - turns, 0.9 + turns], [0.3 + turns**2, 0.1 - turns]],
        ("answer_f1", "tool_f1"),
    )
    assert best_in(outcome) == ["a"] and best_in(outcome, "tool_f1") == ["b"]
    assert (
        "best in answer_f1, or not shown worse: a (0.898); best in tool_f1, or not shown worse: b (0.898) (3 flows"
        in str(outcome)
    )


@given(values=arrays(float, (3, 12), elements=st.sampled_from([0.0, 0.5, 1.0])), order=st.permutations(range(3)))
def test_sets_do_not_depend_on_the_order_of_flows_and_contain_the_best_mean(values, order):
    def names(flows):
        rows = [{(f"c{n:02}", 0, 0): {"answer_f1": value} for n, value in enumerate(values[f])} for f in flows]
        outcome = best(dict(zip(map(str, flows), make_turn_tables(rows), strict=True)), ["answer_f1"])
        return outcome, {*best_in(outcome)}

    outcome, inside = names(range(3))
    assert inside == names(order)[1]
    assert next(iter(outcome.sets.values()))[0].flow in inside


@pytest.mark.slow
def test_equal_flows_rarely_differ():
    apart = sum(len(best_in(best_of(drawn([0.5] * 5, 15, seed)))) < 5 for seed in range(100))
    assert apart <= 11


def test_costs_unknown_values_and_single_turns_have_no_best_flow():
    assert best_of([[[1.0], [1.0]]] * 3, ("cost_usd", "llm_calls")) is None
    assert best_of([[[None, 1.0], [1.0, 1.0]]] * 3) is None
    assert len(best_in(best_of([[[0.5], [1.0]], [[0.7], [1.0]], [[0.2], [1.0]]]))) == 3


def test_compare_prints_the_best_first_and_all_in_json(tmp_path, capsys):
    wrong = [(f"c{c:02}", t) for c in range(12) for t in range(2)]
    data, flows = write_set(tmp_path / "set", 12), [Answering("one"), Answering("two", wrong=wrong), Answering("three")]
    run = play(data, tmp_path / "run", *flows)
    assert main(["compare", str(run.path)]) == 0
    headline, second = capsys.readouterr().out.splitlines()[:2]
    assert headline == "Undecided between one and three"
    assert second.startswith(
        "best in answer_f1, or not shown worse: one (1.000), three (1.000) (3 flows, 12 conversations"
    )
    assert main(["compare", str(run.path), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["best"]
    assert parts["sets"]["answer_f1"][2] == {"flow": "two", "mean": 0.0, "is_best": False}
    assert main(["compare", str(run.path), "--flow", "one", "--flow", "two", "--json"]) == 0
    assert "best" not in json.loads(capsys.readouterr().out)
