"""Words of a difference: more often, on average, whatever was not seen; rough intervals."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.evals.compare.pairs import FlowSides, compare_turns


@pytest.mark.parametrize(
    ("conversations", "gain", "claim"),
    [
        (19, 0.3, "more often"),
        (20, 0.3, "on average, whatever was not seen"),
        (29, 0.05, "more often"),
        (30, 0.05, "on average"),
        (120, 0.05, "on average, whatever was not seen"),
    ],
)
def test_a_claim_of_the_mean_needs_30_conversations_or_a_gain_that_unseen_ones_keep(conversations, gain, claim):
    random = np.random.default_rng(0)
    keys = [(f"c{number:03}", 0, 0) for number in range(conversations)]
    a = {key: {"answer_f1": 0.5} for key in keys}
    b = {key: {"answer_f1": 0.5 + gain + 0.02 * random.random()} for key in keys}
    (pair,) = compare_turns([FlowSides("a", a, "b", b, ("a", "b"))], ["answer_f1"], latency_is_primary=True).pairs
    f1 = pair["answer_f1"]
    assert (f1.verdict, f1.claim, f1.words) == ("B better", claim, f"B better {claim}")
    assert str(pair).startswith(f"b against a: better {claim} in answer_f1 (0.500 -> 0.")
    assert f1.cells[-1] == f1.words


def test_a_gain_that_a_rare_collapse_pays_for_is_not_claimed_of_the_mean():
    keys = [(f"c{number:03}", 0, 0) for number in range(30)]
    a = {key: {"answer_f1": 0.9} for key in keys}
    b = {key: {"answer_f1": 0.0 if number < 3 else 1.0 - number / 1e4} for number, key in enumerate(keys)}
    (pair,) = compare_turns([FlowSides("a", a, "b", b, ("a", "b"))], ["answer_f1"], latency_is_primary=True).pairs
    assert pair["answer_f1"].claim in ("", "more often")


def test_intervals_of_costs_of_few_conversations_are_rough():
    random, cells = np.random.default_rng(0), []
    for conversations in (19, 20):
        keys = [(f"c{number:03}", 0, 0) for number in range(conversations)]
        a, b = ({key: {"answer_f1": 1.0, "input_tokens": random.lognormal(6, 1)} for key in keys} for _ in range(2))
        (pair,) = compare_turns([FlowSides("a", a, "b", b, ("a", "b"))], ["answer_f1"], latency_is_primary=True).pairs
        cells.append(pair["input_tokens"].cells[4])
        assert not pair["answer_f1"].interval.endswith("rough")
    assert [cell.endswith("] rough") for cell in cells] == [True, False]
