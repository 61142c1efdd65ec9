"""Which of several flows: ranks that are shown, the front, and the one sentence at the top."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.evals.compare.paired import sheets
from agentlab.evals.compare.ranking import rank
from tests.support.small_runs import Answering, play, write_set

NAMES = ["a", "b", "c", "d", "e"]


def ranked(values, decide=("answer_f1", "llm_calls")):
    """`values`: of each flow the columns of its measures, a number a conversation."""
    flows = []
    for columns in values:
        rows = zip(*columns, strict=True)
        flows.append({(f"c{n:02}", 0, 0): dict(zip(decide, row, strict=True)) for n, row in enumerate(rows)})
    return rank(dict(zip(NAMES, sheets(flows), strict=False)), decide)


def drawn(means, calls, size=40, seed=1, noise=0.1):
    random = np.random.default_rng(seed)
    shared = random.normal(0, 0.2, size)
    return [[m + shared + random.normal(0, noise, size), np.full(size, c)] for m, c in zip(means, calls, strict=True)]


def test_the_order_is_told_where_it_is_there():
    found = ranked(drawn([0.5, 0.9, 0.3], [1.0, 1.0, 2.0]))
    assert [(place.flow, place.ranks) for place in found.places] == [("b", (1, 1)), ("a", (2, 2)), ("c", (3, 3))]
    assert [place.front for place in found.places] == [True, False, False]
    assert found.places[2].dominated == 1 and found.places[0].dominated == 0
    assert str(found).startswith("best in answer_f1 of 3 flows: b (0.8")
    assert "a is dominated by b (P = 1.00); c is dominated by b (P = 1.00)" in str(found)


def test_alike_flows_have_all_ranks_and_a_cheaper_one_is_on_the_front():
    found = ranked(drawn([0.5, 0.5, 0.5, 0.5, 0.5], [3.0, 1.0, 3.0, 3.0, 3.0]))
    assert {place.ranks for place in found.places} == {(1, 5)}
    assert str(found).startswith("no quality that decides tells the 5 flows apart")
    assert next(place for place in found.places if place.flow == "b").front


def test_the_first_is_among_those_that_no_other_is_shown_to_beat():
    found = ranked(drawn([0.8, 0.8, 0.2], [1.0, 2.0, 1.0]))
    assert found.places[2].ranks == (3, 3) and {place.ranks for place in found.places[:2]} == {(1, 2)}
    assert " or " in str(found) and "not told apart" in str(found)


@pytest.mark.slow
def test_ranks_of_alike_flows_are_rarely_told_apart_and_intervals_hold_together():
    told = missed = 0
    for seed in range(100):
        found = ranked(drawn([0.5] * 5, [1.0] * 5, size=15, seed=seed))
        told += any(place.ranks != (1, 5) for place in found.places)
        missed += any(not place.interval[0] <= 0.5 <= place.interval[1] for place in found.places)
    assert told <= 9 and missed <= 9


def test_what_cannot_be_ranked():
    assert ranked([[[1.0], [1.0]]] * 3, ("cost_usd", "llm_calls")) is None
    assert ranked([[[None, 1.0], [1.0, 1.0]]] * 3) is None
    alone = ranked([[[0.5], [1.0]], [[0.7], [1.0]], [[0.2], [1.0]]])
    assert {place.ranks for place in alone.places} == {(1, 3)} and alone.places[0].interval is None


def test_compare_says_it_in_its_first_line_and_all_of_it_in_json(tmp_path, capsys):
    wrong = [(f"c{c:02}", t) for c in range(12) for t in range(2)]
    data, flows = write_set(tmp_path / "set", 12), [Answering("one"), Answering("two", wrong=wrong), Answering("three")]
    run = play(data, tmp_path / "run", *flows)
    assert main(["compare", str(run.path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("best in answer_f1 of 3 flows: one (1.000) or three (1.000), not told apart;")
    assert main(["compare", str(run.path), "--all"]) == 0
    assert "P(dominated)" in capsys.readouterr().out
    assert main(["compare", str(run.path), "--json"]) == 0
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    assert ranking["flows"][2] | {"interval": 0} == {
        **{"flow": "two", "mean": 0.0, "ranks": [3, 3], "dominated": 1.0, "front": False, "interval": 0},
        "by": "one",
    }
    assert main(["compare", str(run.path), "--flow", "one", "--flow", "two", "--json"]) == 0
    assert "ranking" not in json.loads(capsys.readouterr().out)
