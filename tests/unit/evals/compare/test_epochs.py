"""Where an error comes from when everything is played several times, and how reliable a flow is."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.epochs import components, pass_at_k, pass_hat_k
from tests.support.small_runs import Answering, play, write_set


def drawn(between: float, turns: float, epochs: float, size: int = 300, seed: int = 1) -> dict:
    random = np.random.default_rng(seed)
    values = {}
    for conversation in range(size):
        own = random.normal(0, between)
        for turn in range(3):
            of_turn = own + random.normal(0, turns)
            for epoch in range(4):
                values[f"c{conversation}", turn, epoch] = of_turn + random.normal(0, epochs)
    return values


def test_each_component_is_found_where_it_is():
    found = components(drawn(1.0, 0.5, 2.0))
    assert found[:3] == pytest.approx((1.0, 0.25, 4.0), rel=0.25)
    alone = components(drawn(0.0, 0.0, 1.0))
    assert alone[0] < 0.05 and alone[1] < 0.05 and alone[2] == pytest.approx(1.0, rel=0.1)


def test_more_epochs_are_worth_the_money_only_where_they_are_the_noise():
    noisy, steady = components(drawn(0.0, 0.0, 1.0)), components(drawn(1.0, 0.0, 0.1))
    assert "more epochs cost as much and are worth it" in noisy.advice
    assert noisy.twice_epochs == pytest.approx(noisy.error / 2**0.5, rel=0.1)
    assert steady.advice.endswith(": more conversations") and steady.twice_epochs == pytest.approx(
        steady.error, rel=0.01
    )


def test_the_error_with_twice_the_epochs_is_the_one_that_is_seen_with_them():
    values = drawn(0.3, 0.2, 1.5)
    half = components({key: value for key, value in values.items() if key[2] < 2})
    assert half.twice_epochs == pytest.approx(components(values).error, rel=0.1)


def test_what_cannot_be_told_is_not_told():
    one = components({("c0", 0, 0): 1.0, ("c0", 0, 1): 0.0})
    assert one == (None, None, 0.5, None, None, None) and one.advice == ""
    once = components({(f"c{c}", 0, 0): float(c) for c in range(4)})
    assert once.epochs is None and once.twice_epochs is None and once.error > 0
    assert components({}).advice == ""


def test_pass_at_k_and_pass_hat_k_are_unbiased():
    random = np.random.default_rng(2)
    right = random.binomial(6, 0.7, 4000)
    assert np.mean([pass_at_k(6, int(c), 2) for c in right]) == pytest.approx(1 - 0.3**2, abs=0.01)
    assert np.mean([pass_hat_k(6, int(c), 2) for c in right]) == pytest.approx(0.7**2, abs=0.01)
    assert pass_at_k(3, 0, 3) == 0 and pass_hat_k(3, 2, 3) == 0 and pass_hat_k(3, 3, 3) == pass_at_k(3, 1, 3) == 1


class Forgetful(Answering):
    """Right only every other time."""

    def __init__(self, name="forgetful"):
        super().__init__(name)
        self.asked = {}

    async def respond(self, turn, session):
        self.asked[turn.text] = self.asked.get(turn.text, 0) + 1
        conversation, number = turn.text.split()
        self.wrong = [(conversation, int(number))] if self.asked[turn.text] % 2 else []
        return await super().respond(turn, session)


def test_the_table_and_the_comparison_tell_it_where_there_are_epochs(tmp_path, capsys):
    data = write_set(tmp_path / "set", 6)
    run = play(data, tmp_path / "run", Answering(), Forgetful(), epochs=2, generation={"temperature": 1})
    assert main(["show", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "answer_f1 of answering from 0.5 on: pass@2 1.00 [1.00, 1.00], pass^2 1.00" in out
    assert "answer_f1 of forgetful from 0.5 on: pass@2 1.00 [1.00, 1.00], pass^2 0.00" in out
    assert main(["compare", str(run.path)]) == 0
    assert "where the error of answer_f1 comes from" not in capsys.readouterr().out  # all alike: there is no error
    frame = run.variance("answer_f1")
    assert frame.loc["forgetful", "epochs"] == 0.5 and frame.loc["answering", "epochs"] == 0
    table = run.passing("answer_f1")
    assert list(table[table.flow == "forgetful"]["pass^k"]) == [0.5, 0.0]
    with pytest.raises(RunError, match="has 2 epochs; play it again with --epochs 3"):
        run.passing("answer_f1", 3)
    with pytest.raises(RunError, match="unknown measure"):
        run.variance("nothing")


def test_one_epoch_tells_nothing_of_reliability(tmp_path, capsys):
    run = play(write_set(tmp_path / "set", 3), tmp_path / "run", Answering(), Answering("other", wrong=[("c01", 0)]))
    main(["show", str(run.path)])
    main(["compare", str(run.path)])
    out = capsys.readouterr().out
    assert "pass^" not in out and "where the error" not in out
