"""Intervals and the smallest visible difference, held against cases that can be worked out by hand or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agentlab.evals.compare.statistics import (
    PERMUTATIONS,
    cohens_dz,
    constant_p,
    holm,
    mean_with_interval,
    permutation_floor,
    permutation_p,
    smallest_visible_difference,
    standard_error,
    upper_bound,
)

ROWS = st.lists(st.tuples(st.floats(-1, 1), st.sampled_from("abcdef")), min_size=1, max_size=60)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_the_interval_holds_the_mean_and_stays_within_the_range_of_the_values(rows):
    values, clusters = zip(*rows, strict=True)
    mean, interval = mean_with_interval(values, clusters)
    assert mean == pytest.approx(np.mean(values))
    assert (interval is None) == (len(set(clusters)) < 2)
    if interval:
        assert min(values) - 1e-9 <= interval[0] <= mean <= interval[1] <= max(values) + 1e-9


@pytest.mark.parametrize("values", [[0.3] * 6, [0.1, 0.5, 0.5, 0.1, 0.1, 0.5]])
def test_conversations_that_are_all_alike_give_an_interval_of_no_width(values):
    mean, interval = mean_with_interval(values, list("aabbcc"))
    assert interval == (mean, mean)


def test_turns_that_agree_within_a_conversation_widen_the_interval():
    values = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0] * 5
    alone = [str(i) for i in range(40)]
    together = [str(i // 4) for i in range(40)]
    narrow, wide = (mean_with_interval(values, clusters)[1] for clusters in (alone, together))
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        level = random.uniform(0.2, 0.8, size=40)
        values = (random.uniform(size=(40, 4)) < level[:, None]).astype(float).ravel()
        _, (low, high) = mean_with_interval(values.tolist(), [str(i // 4) for i in range(160)])
        covered += low <= 0.5 <= high
    assert 180 <= covered <= 199


def test_the_interval_covers_better_than_a_plain_percentile_one_with_five_conversations():
    random = np.random.default_rng(3)
    ours = plain = 0
    for _ in range(300):
        values = random.beta(0.5, 0.5, (5, 1)) * 0.7 + random.uniform(0, 0.3, (5, 4))
        _, (low, high) = mean_with_interval(values.ravel().tolist(), [str(i // 4) for i in range(20)])
        ours += low <= 0.5 <= high
        drawn = random.integers(0, 5, (1000, 5))
        low, high = np.quantile(values.mean(axis=1)[drawn].mean(axis=1), [0.025, 0.975])
        plain += low <= 0.5 <= high
    assert ours / 300 >= 0.90
    assert ours > plain + 10


@settings(deadline=None, max_examples=60)
@given(ROWS, st.randoms())
def test_a_permutation_test_is_a_probability_and_forgets_order_and_names(rows, random):
    values, clusters = zip(*rows, strict=True)
    greater, two_sided = permutation_p(values, clusters, "greater"), permutation_p(values, clusters)
    assert 0 < greater <= 1
    assert 0 < two_sided <= 1
    assert permutation_floor(values, clusters) <= greater
    negated = [-value for value in values]
    assert permutation_p(negated, clusters) == pytest.approx(two_sided), "A against B is B against A"
    assert greater + permutation_p(negated, clusters, "greater") >= 1 - 1e-9
    shuffled = random.sample(rows, len(rows))
    assert permutation_p([v for v, _ in shuffled], ["x" + c for _, c in shuffled], "greater") == pytest.approx(greater)


def test_permutation_tests_that_can_be_counted_by_hand():
    assert permutation_p([1, 1, 2, 3], list("aabc"), "greater") == 1 / 8
    assert permutation_p([1, 1, 2, 3], list("aabc")) == 2 / 8
    assert permutation_p([-1, 2, 0], list("abc"), "greater") == 2 / 4, "what does not differ cannot tell"
    assert permutation_p([1.0], ["a"], "greater") == 0.5
    assert (
        permutation_p([-1.0], ["a"], "greater") == permutation_p([1.0], ["a"]) == permutation_p([0, 0], list("ab")) == 1
    )
    many = [str(i) for i in range(30)]
    assert permutation_p([1.0] * 30, many, "greater") == 1 / (PERMUTATIONS + 1) == permutation_floor([1.0] * 30, many)
    noise = np.random.default_rng(0).normal(0.3, 1, 30).tolist()
    assert permutation_p(noise, many) == permutation_p(noise, many)
    assert permutation_p(noise, many) == pytest.approx(stats.ttest_1samp(noise, 0).pvalue, abs=0.02)


def test_two_runs_of_one_making_rarely_differ_by_the_same_on_every_turn():
    assert constant_p(1) == 0.5
    random = np.random.default_rng(4)
    for values, weights in (((0, 1), (0.5, 0.5)), ((1, 2, 3), (0.3, 0.4, 0.3))):
        a, b = (random.choice(values, p=weights, size=(20000, 3)) for _ in range(2))
        d = b - a
        same = (d[:, 0] > 0) & (d == d[:, :1]).all(axis=1)
        assert same.mean() <= constant_p(3) * 1.1


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_only_raises_keeps_the_order_and_stays_a_probability(p_values):
    adjusted = holm(p_values)
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert all(p <= q <= 1 for p, q in pairs)
    assert [q for _, q in pairs] == sorted(q for _, q in pairs)
    if p_values:
        assert min(adjusted) == min(1.0, min(p_values) * len(p_values))
        assert max(adjusted) <= min(1.0, max(p_values) * len(p_values))


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_d_z_is_the_mean_in_standard_deviations():
    assert cohens_dz([1, 2, 3]) == pytest.approx(2.0)
    assert cohens_dz([0.1, 0.1, 0.1]) is cohens_dz([1.0]) is None


def test_the_error_of_single_turns_is_the_textbook_one_and_clustering_never_lowers_it():
    values, alone = [0.1, 0.5, 0.9, 0.2], list("abcd")
    assert standard_error(values, alone) == pytest.approx(stats.sem(values))
    _, high = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
    assert upper_bound(values, alone) == pytest.approx(high)
    # Two conversations that happen to agree are no proof of certainty.
    assert standard_error([1, 0, 1, 0], list("aabb")) == pytest.approx(stats.sem([1, 0, 1, 0]))
    assert standard_error([1, 1, 0, 0], list("aabb")) == pytest.approx(0.5)


def test_a_test_that_asks_more_sees_less():
    values, clusters = [0.1, 0.5, -0.3, 0.2, 0.0], list("abcde")
    usual = smallest_visible_difference(values, clusters, 0.025)
    assert usual == pytest.approx((stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)) * stats.sem(values))
    assert (
        smallest_visible_difference(values, clusters, 0.05)
        < usual
        < smallest_visible_difference(values, clusters, 0.01)
    )


def test_the_smallest_visible_difference_is_found_in_about_80_percent_of_runs():
    random = np.random.default_rng(2)
    clusters = [str(i // 3) for i in range(180)]
    visible = smallest_visible_difference(random.normal(0, 1, 180).tolist(), clusters, 0.025)
    found = 0
    for _ in range(300):
        sample = random.normal(visible, 1, 180)
        by_cluster = sample.reshape(60, 3).mean(axis=1)
        found += abs(by_cluster.mean()) > 1.96 * by_cluster.std(ddof=1) / np.sqrt(60)
    assert 0.68 <= found / 300 <= 0.92


def test_one_conversation_cannot_tell():
    assert smallest_visible_difference([0.1, 0.2], ["a", "a"], 0.05) is None
    assert upper_bound([0.1, 0.2], ["a", "a"]) is None
    with pytest.raises(ValueError, match="not empty"):
        mean_with_interval([], [])


def test_a_cluster_that_sums_to_a_rounding_error_has_not_changed() -> None:
    assert 0.1 + 0.2 - 0.3 != 0
    assert permutation_floor([0.1, 0.2, -0.3, 1.0], ["a", "a", "a", "b"]) == 0.5
