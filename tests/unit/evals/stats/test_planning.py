"""Conversations needed and detectable loss, compared with simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agentlab.evals.stats.planning import (
    conversations_for_power,
    conversations_to_pass,
    conversations_to_reject,
    detectable_loss,
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
            moved = drawn + np.array([loss, 0, 0]) * counts
            found = SignFlips(moved).test().p_adjusted[0] < 0.05
            same, other = same + (found and called == "same"), other + (found and called == "other")
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
    assert conversations_for_power(sums, counts, 0.05, 0.5) < conversations_for_power(sums, counts, 0.01, 0.5)
    assert conversations_to_reject(0.2 + sums * 0.5, counts, 0.025) < conversations_to_reject(
        0.2 + sums * 0.5, counts, 0.001
    )


def test_conversations_needed_exclude_the_margin_and_one_fewer_does_not():
    sums, counts = np.r_[np.zeros(18), 2.0, -1.0], np.full(20, 4.0)
    more = math.ceil(conversations_to_pass(sums, counts, 1.0, 0.1, 0.05))
    enough, too_few = (margin_p_value(sums, counts, 1.0, 0.1, 1 + number / 20) for number in (more, more - 1))
    assert enough <= 0.05 < too_few
    assert conversations_to_pass(sums + 0.8, counts, 1.0, 0.1, 0.05) == math.inf, (
        "a loss beyond the margin is never excluded"
    )
