"""Reliability of a flow over several epochs."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.evals.compare.epochs import pass_at_k, pass_hat_k
from support.small_runs import Answering, play, write_set


def test_pass_at_k_and_pass_hat_k_are_unbiased():
    random = np.random.default_rng(2)
    right = random.binomial(6, 0.7, 4000)
    assert np.mean([pass_at_k(6, int(c), 2) for c in right]) == pytest.approx(1 - 0.3**2, abs=0.01)
    assert np.mean([pass_hat_k(6, int(c), 2) for c in right]) == pytest.approx(0.7**2, abs=0.01)
    assert pass_at_k(3, 0, 3) == 0 and pass_hat_k(3, 2, 3) == 0 and pass_hat_k(3, 3, 3) == pass_at_k(3, 1, 3) == 1


class Forgetful(Answering):
    """A system that is right at every second attempt."""

    def __init__(self, name="forgetful"):
        super().__init__(name)
        self.received = {}

    async def respond(self, turn, session):
        self.received[turn.text] = self.received.get(turn.text, 0) + 1
        conversation, number = turn.text.split()
        self.wrong = [(conversation, int(number))] if self.received[turn.text] % 2 else []
        return await super().respond(turn, session)


def test_table_shows_reliability_with_epochs(tmp_path, capsys):
    data = write_set(tmp_path / "set", 6)
    run = play(data, tmp_path / "run", Answering(), Forgetful(), epochs=2, generation={"temperature": 1})
    assert main(["show", str(run.path), "--all"]) == 0
    out = capsys.readouterr().out
    assert "answer_f1 of answering from 0.5 on: pass@2 1.00 [0.54, 1.00], pass^2 1.00" in out
    assert "answer_f1 of forgetful from 0.5 on: pass@2 1.00 [0.54, 1.00], pass^2 0.00" in out
    table = run.passing("answer_f1")
    assert list(table[table.flow == "forgetful"]["pass^k"]) == [0.5, 0.0]
    with pytest.raises(RunError, match="has 2 epochs; run it again with --epochs 3"):
        run.passing("answer_f1", 3)
    with pytest.raises(RunError, match="unknown measure"):
        run.passing("nothing")


def test_one_epoch_has_no_reliability(tmp_path, capsys):
    run = play(write_set(tmp_path / "set", 3), tmp_path / "run", Answering(), Answering("other", wrong=[("c01", 0)]))
    main(["show", str(run.path), "--all"])
    assert "pass^" not in capsys.readouterr().out
