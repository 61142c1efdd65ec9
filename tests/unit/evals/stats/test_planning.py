"""Conversations needed and detectable loss, compared with simulations."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.evals.stats.planning import (
    detectable_loss,
    more_to_exclude,
)
from agentlab.evals.stats.sign_flips import SignFlips
from agentlab.evals.stats.statistics import margin_p_value


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["even", "uneven"])
@pytest.mark.parametrize("size", [12, 20])
def test_the_loss_that_is_stated_is_found_in_about_four_of_five_runs(kind, size):
    random = np.random.default_rng(size)
    same, other, runs = 0, 0, 0
    for _ in range(150):
        counts = random.integers(1, 61, size) if kind == "uneven" else np.full(size, 4)
        counts = np.repeat(counts[:, None], 3, axis=1).astype(float)

        def noise(counts=counts):
            return counts * random.normal(0, 0.2, counts.shape) + np.sqrt(counts) * random.normal(0, 0.4, counts.shape)

        sums = noise()
        loss = detectable_loss(sums[:, 0], counts[:, 0], 0.05 / 3)
        if loss is None:
            continue
        runs += 1
        for drawn, called in ((sums, "same"), (noise(), "other")):
            changed = drawn + np.array([loss, 0, 0]) * counts
            result = SignFlips(changed).test().p_adjusted[0] < 0.05
            same, other = same + (result and called == "same"), other + (result and called == "other")
    assert runs > 100
    # Two standard errors of 150 are .065; the residuals of few uneven conversations know too little of another run's.
    assert 0.75 - 0.065 <= same / runs <= 0.85 + 0.065
    assert 0.70 - 0.065 <= other / runs <= 0.85 + 0.065


def test_no_loss_is_stated_for_few_or_dominated_conversations():
    random = np.random.default_rng(0)
    counts = np.r_[76.0, np.full(19, 4.0)]
    assert detectable_loss(counts * random.normal(0, 0.2, 20), counts, 0.05) is None
    for size in (1, 2, 8):
        assert detectable_loss(random.normal(size=size), np.ones(size), 0.05) is None
    assert detectable_loss(np.zeros(20), np.ones(20), 0.05) is None, "what never varies says nothing of noise"


def test_a_test_that_asks_more_sees_less_and_needs_more():
    random = np.random.default_rng(0)
    sums, counts = random.normal(size=20), np.ones(20)
    assert (
        detectable_loss(sums, counts, 0.05)
        < detectable_loss(sums, counts, 0.05 / 4)
        < detectable_loss(sums, counts, 0.01 / 4)
    )
    assert more_to_exclude(sums / 2, counts, 0.1, 1.0).high < more_to_exclude(sums / 2, counts, 0.1, 1.0, 0.01).high
    assert more_to_exclude(sums / 2, counts, 0.2, 1.0).high < more_to_exclude(sums / 2, counts, 0.1, 1.0).high


def test_conversations_needed_exclude_the_margin_in_four_of_five_runs_of_equal_flows():
    random, passed, runs = np.random.default_rng(4), 0, 400
    for _ in range(runs):
        pilot = random.normal(0, 0.3, 20).clip(-1, 1)
        needed = more_to_exclude(pilot, np.ones(20), 0.1, 1.0)
        assert needed.low <= needed.high and not needed.is_least
        whole = np.append(pilot, random.normal(0, 0.3, needed.high).clip(-1, 1))
        passed += margin_p_value(whole, np.ones(len(whole)), 1.0, 0.1) <= 0.05
    assert 0.75 <= passed / runs <= 0.92


def test_equal_conversations_give_a_least_number_that_is_never_below_the_possible_one():
    few = more_to_exclude(np.zeros(10), np.ones(10), 0.1, 1.0)
    assert few.is_least and few.low >= 19 and str(few) == f"at least {few.high} more conversations"
    assert more_to_exclude(np.zeros(28), np.ones(28), 0.1, 1.0).low >= 1
    longer = more_to_exclude(np.zeros(10), np.ones(10), 0.1, 1.0, longest=60.0)
    assert longer.low > 1000, "one unseen conversation of 60 turns outweighs these"
    for sums, margin in ((np.zeros(1), 0.1), (np.zeros(9), 0.0), (np.ones(9), 1e-6)):
        assert more_to_exclude(sums, np.ones(len(sums)), margin, 1.0) is None
