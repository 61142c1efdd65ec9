"""Scores of every type that scorers return: a float, or one line that names scorer and turn, and a readable run."""

from __future__ import annotations

import decimal
import fractions
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agentlab as al
from agentlab.cli.terminal import show_run
from agentlab.core.errors import RunError
from agentlab.evals.scorers import Score
from agentlab.models.scripted import Scripted
from support.rules_set import write_set


class TorchLike:
    def item(self) -> float:
        return 0.5

    def __float__(self) -> float:
        return 0.5


@pytest.fixture
def played(tmp_path, own_home):
    turns = [{"user": "one"}, {"user": "two"}]
    folder = write_set(tmp_path / "set", [{"id": "c", "turns": turns}], [])

    async def answers(turn, session):
        return al.Reply(text="yes")

    def play(returns: Any) -> Any:
        def score(turn: Any, outcome: Any) -> dict[str, Any]:
            if turn.user == "one":
                return {"odd": Score(value=0.5, reason="half")}
            if isinstance(returns, BaseException):
                raise returns
            return {"odd": returns}

        scorer = SimpleNamespace(__name__="my_scorer", metrics=lambda turn: ["odd"], score=score)
        with al.Lab(model=Scripted([]), datasets=[str(folder)], flows=[answers], embedder="hashing/hashing-64") as lab:
            lab.bench.scorers = [scorer]
            lab.run_sync(out=tmp_path / "run")
        return al.open_run(tmp_path / "run")

    return play


NUMBERS = {
    "np.float32": (np.float32(0.5), 0.5),
    "np.bool_": (np.bool_(True), 1.0),
    "np.int64": (np.int64(1), 1.0),
    "0d array": (np.array(0.5), 0.5),
    "torch": (TorchLike(), 0.5),
    "Decimal": (decimal.Decimal("0.5"), 0.5),
    "Fraction": (fractions.Fraction(1, 2), 0.5),
    "True": (True, 1.0),
    "int": (1, 1.0),
}


@pytest.mark.parametrize("wrap", [lambda value: Score(value=value, reason="r"), lambda value: value])
@pytest.mark.parametrize(("given", "value"), NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_all_types_are_floats(played, wrap, given, value):
    run = played(wrap(given))
    assert [float(score) for score in run.scores["value"]] == [0.5, value]
    assert run.summary["flows"]["answers"]["scores"]["odd"]["mean"] == (0.5 + value) / 2


@pytest.mark.parametrize(
    "value", [math.nan, -math.inf, decimal.Decimal("NaN"), np.float32("nan"), 1e308, None, -(10**20)], ids=str
)
def test_scorer_without_a_value_is_unknown_and_named(played, capsys, value):
    run = played(Score(value=value, reason="r"))
    assert run.summary["flows"]["answers"]["scores"]["odd"]["mean"] is None
    assert run.turn_values["answers"]["c", 0, 0]["odd"] == 0.5, "the run can be read"
    show_run(run)
    assert "odd is unknown: its scorer gave no number for turn 2 of c by answers" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value", [10**400, complex(1, 0), np.array([0.5, 0.7]), "0.5", SystemExit(1), {"a": 1}], ids=str
)
def test_score_that_is_no_number_is_one_line_and_replies_stay(played, value, tmp_path):
    with pytest.raises(
        RunError, match=r"grading turn 2 of c by answers for odd failed: .*\(scorer my_scorer\)"
    ) as text:
        played(value)
    assert "\n" not in str(text.value)
    rows = [json.loads(line) for line in (tmp_path / "run" / "turns.jsonl").read_text().splitlines()]
    assert [row["reply"]["text"] for row in rows] == ["yes", "yes"]


@pytest.mark.parametrize(
    ("reason", "stored"),
    [(None, ""), ({"a": 1}, "{'a': 1}"), (ValueError("x"), "x"), ("half \ud83d of it", "half \ud83d of it")],
    ids=["None", "dict", "exception", "half a surrogate"],
)
def test_any_reason_can_be_read_again(played, reason, stored):
    run = played(Score(value=0.5, reason=reason))
    assert [*run.scores["reason"]][-1].encode("utf-8", "backslashreplace") == stored.encode("utf-8", "backslashreplace")
