"""Intervals of means and the test of a mean difference, compared with results by hand or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.evals.stats.intervals import Column, mean_interval, mean_p_value, score_ends
from agentlab.evals.stats.statistics import by_cluster, loss_bound

ROWS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcdef")), min_size=1, max_size=60)


def interval(values, clusters):
    return mean_interval(Column(*by_cluster(values, clusters), (0.0, 1.0)))


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_interval_of_scores_contains_the_mean_stays_on_the_scale_and_has_a_width(rows):
    values, clusters = zip(*rows, strict=True)
    mean, result = interval(values, clusters)
    assert mean == pytest.approx(np.mean(values))
    assert (result is None) == (len(set(clusters)) < 2)
    if result:
        assert -1e-9 <= result[0] <= mean <= result[1] <= 1 + 1e-9
        assert result[1] - result[0] > 0.1


@pytest.mark.parametrize("size", [2, 5, 60])
def test_conversations_that_are_all_right_leave_room_for_unseen_ones(size):
    mean, (low, high) = interval(np.ones(size), [str(number) for number in range(size)])
    assert (mean, high) == (1.0, 1.0)
    assert low == pytest.approx(0.025 ** (1 / size), abs=1e-6)
    _, (low, high) = interval(np.zeros(size), [str(number) for number in range(size)])
    assert (low, high) == (0.0, pytest.approx(1 - 0.025 ** (1 / size), abs=1e-6))


def test_interval_never_contradicts_the_bound_of_a_pass():
    random = np.random.default_rng(2)
    for size in (5, 12, 40):
        sums, counts = random.choice([-1.0, 0.0, 0.0, 1.0], size), random.integers(1, 5, size).astype(float)
        _, (low, high) = mean_interval(Column(sums, counts, (-1.0, 1.0), longest=9.0, is_difference=True))
        assert high >= loss_bound(sums, counts, 1.0, longest=9.0)
        assert low <= -loss_bound(-sums, counts, 1.0, longest=9.0)


def test_turns_that_agree_within_a_conversation_widen_the_interval():
    values = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0] * 5
    narrow, wide = (interval(values, [str(i // k) for i in range(40)])[1] for k in (1, 4))
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_ends_of_a_score_follow_values_beyond_its_usual_scale():
    assert score_ends(np.array([0.2, 0.4])) == (0.0, 1.0)
    assert score_ends(np.array([-3.0, 40.0])) == (-3.0, 40.0)


@pytest.mark.parametrize(("size", "min_coverage"), [(5, 0.88), (20, 0.90), (60, 0.92)])
def test_interval_of_skewed_costs_covers_their_mean(size, min_coverage):
    random, covered, runs = np.random.default_rng(size), 0, 300
    for _ in range(runs):
        _, (low, high) = mean_interval(Column(random.lognormal(0, 1, size), np.ones(size)))
        covered += low <= np.exp(0.5) <= high
    assert covered / runs >= min_coverage - 2 * np.sqrt(min_coverage * (1 - min_coverage) / runs)


def test_costs_that_are_equal_or_mostly_nothing_have_an_interval():
    assert mean_interval(Column(np.full(5, 3.0), np.ones(5))) == (3.0, (3.0, 3.0))
    mean, (low, high) = mean_interval(Column(np.array([0.0, 0.0, 0.0, 2.0]), np.ones(4)))
    assert 0 <= low <= mean <= high < np.inf
    assert mean_interval(Column(np.zeros(4), np.ones(4)))[1] == (0.0, 0.0)


@pytest.mark.parametrize("size", [20, 2000])
def test_p_of_the_mean_is_small_for_a_shift_and_large_without_one(size):
    values = np.random.default_rng(size).normal(0, 1, size)
    values -= values.mean()
    assert mean_p_value(values, np.ones(size)) > 0.9
    assert mean_p_value(values + 4 / np.sqrt(size), np.ones(size)) < 0.01
    assert mean_p_value(np.ones(size), np.ones(size)) == 0.0
    assert mean_p_value(np.zeros(size), np.ones(size)) == mean_p_value(np.ones(1), np.ones(1)) == 1.0


def test_p_of_the_mean_reacts_to_skew_where_signs_do_not():
    random, rejected = np.random.default_rng(1), 0
    for _ in range(200):
        differences = np.exp(0.5) - random.lognormal(0, 1, 30)
        rejected += mean_p_value(differences, np.ones(30)) <= 0.05
    assert rejected <= 200 * 0.13
