"""Intervals and bounds, compared with results by hand, by brute force or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agentlab.evals.stats.statistics import (
    by_cluster,
    cohens_dz,
    loss_bound,
    margin_p_value,
    mean_intervals,
    resamples,
)

ROWS = st.lists(st.tuples(st.floats(-1, 1), st.sampled_from("abcdef")), min_size=1, max_size=60)


def interval(values, clusters):
    return mean_intervals([by_cluster(values, clusters)])[0]


@settings(max_examples=60)
@given(ROWS)
def test_interval_contains_the_mean_and_stays_in_the_range_of_values(rows):
    values, clusters = zip(*rows, strict=True)
    mean, found = interval(values, clusters)
    assert mean == pytest.approx(np.mean(values))
    assert (found is None) == (len(set(clusters)) < 2)
    if found:
        assert min(values) - 1e-9 <= found[0] <= mean <= found[1] <= max(values) + 1e-9


@pytest.mark.parametrize("values", [[0.3] * 6, [0.1, 0.5, 0.5, 0.1, 0.1, 0.5]])
def test_conversations_that_are_all_alike_give_an_interval_of_no_width(values):
    mean, found = interval(values, list("aabbcc"))
    assert found == (mean, mean)


def test_turns_that_agree_within_a_conversation_widen_the_interval():
    values = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0] * 5
    alone = [str(i) for i in range(40)]
    together = [str(i // 4) for i in range(40)]
    narrow, wide = (interval(values, clusters)[1] for clusters in (alone, together))
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_interval_has_its_nominal_coverage():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        level = random.uniform(0.2, 0.8, size=40)
        values = (random.uniform(size=(40, 4)) < level[:, None]).astype(float)
        _, (low, high) = mean_intervals([(values.sum(axis=1), np.full(40, 4.0))])[0]
        covered += low <= 0.5 <= high
    assert 180 <= covered <= 199


def test_interval_beats_the_percentile_interval_for_five_conversations():
    random = np.random.default_rng(3)
    ours = plain = 0
    for _ in range(300):
        values = random.beta(0.5, 0.5, (5, 1)) * 0.7 + random.uniform(0, 0.3, (5, 4))
        _, (low, high) = mean_intervals([(values.sum(axis=1), np.full(5, 4.0))])[0]
        ours += low <= 0.5 <= high
        drawn = random.integers(0, 5, (1000, 5))
        low, high = np.quantile(values.mean(axis=1)[drawn].mean(axis=1), [0.025, 0.975])
        plain += low <= 0.5 <= high
    assert ours / 300 >= 0.90
    assert ours > plain + 10


def test_the_interval_is_the_bca_interval_of_the_same_resamples_written_out():
    random = np.random.default_rng(0)
    counts = random.integers(1, 9, 30).astype(float)
    sums = counts * random.exponential(1, 30)
    mean = sums.sum() / counts.sum()
    drawn = np.array([w @ sums / (w @ counts) for block in resamples(30) for w in block])
    left = np.array([np.delete(sums, c).sum() / np.delete(counts, c).sum() for c in range(30)])
    skew = ((left.mean() - left) ** 3).sum() / (6 * ((left.mean() - left) ** 2).sum() ** 1.5)
    shift = stats.norm.ppf(((drawn < mean).mean() + (drawn <= mean).mean()) / 2)
    wider = np.sqrt(30 / 29) * stats.t.ppf(0.975, 29)
    levels = [stats.norm.cdf(shift + (shift + z) / (1 - skew * (shift + z))) for z in (-wider, wider)]
    assert mean_intervals([(sums, counts)])[0][1] == pytest.approx(np.quantile(drawn, levels), abs=1e-7)


def test_columns_and_blocks_of_resamples_are_independent(monkeypatch):
    random = np.random.default_rng(0)
    columns = [(random.normal(size=20), np.ones(20)), (random.normal(size=20), np.r_[np.zeros(4), np.ones(16)])]
    together, alone = mean_intervals(columns), [mean_intervals([column])[0] for column in columns]
    for (mean, found), (expected_mean, expected) in zip(together, alone, strict=True):
        assert (mean, *found) == pytest.approx((expected_mean, *expected))
    monkeypatch.setattr("agentlab.evals.stats.statistics.BLOCK", 100)
    assert [len(block) for block in resamples(20)] == [5] * 400
    assert mean_intervals(columns)[0][1] == pytest.approx(together[0][1])


@pytest.mark.parametrize(("broken", "size"), [(0, 2), (0, 5), (4, 5), (0, 59), (3, 60), (10, 1000)])
def test_bound_of_binary_losses_is_that_of_clopper_and_pearson(broken, size):
    counts = np.full(size, 4.0)
    sums = np.where(np.arange(size) < broken, 4.0, 0.0)
    expected = stats.beta.ppf(0.95, broken + 1, size - broken)
    assert loss_bound(sums, counts, 1.0) == pytest.approx(expected, abs=1e-6)
    assert margin_p_value(sums, counts, 1.0, expected) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(("margin", "needed"), [(0.05, 59), (0.10, 29)])
def test_without_variation_a_margin_needs_the_stated_number_of_conversations(margin, needed):
    for size in (needed - 1, needed):
        assert (loss_bound(np.zeros(size), np.ones(size), 1.0) <= margin) == (size == needed)


def test_bound_is_its_nominal_quantile():
    random = np.random.default_rng(0)
    counts = random.integers(1, 60, 12).astype(float)
    sums = counts * random.uniform(-0.5, 0.5, 12)
    weights = random.exponential(size=(200_000, 13))
    length = counts.max()
    means = weights @ np.append(sums, length) / (weights @ np.append(counts, length))
    assert loss_bound(sums, counts, 1.0) == pytest.approx(np.quantile(means, 0.95), abs=3e-3)
    assert loss_bound(sums, counts, 1.0, alpha=0.01) == pytest.approx(np.quantile(means, 0.99), abs=5e-3)


def test_steps_of_many_conversations_do_not_change_the_result(monkeypatch):
    random = np.random.default_rng(0)
    counts = random.integers(1, 9, 3000).astype(float)
    sums = counts * random.normal(0, 0.3, 3000)
    fine = loss_bound(sums, counts, 1.0)
    monkeypatch.setattr("agentlab.evals.stats.statistics.FINE", 10**6)
    assert fine == pytest.approx(loss_bound(sums, counts, 1.0), abs=5e-5)


@pytest.mark.parametrize("size", [5, 12, 30, 60, 120])
@pytest.mark.parametrize("kind", ["breaks", "noise", "flips", "half breaks"])
def test_a_loss_as_large_as_the_margin_is_rarely_excluded(kind, size):
    random, margin = np.random.default_rng(size), 0.1
    passed = 0
    for _ in range(200):
        counts = random.integers(1, 61, size).astype(float)
        lost = (
            counts
            * {
                "breaks": random.random(size) < margin,
                "half breaks": 0.5 * (random.random(size) < 2 * margin),
                "noise": np.clip(random.normal(margin, 0.3, size), -1, 1),
                "flips": random.choice([1, 0, -1], size, p=[0.25, 0.6, 0.15]),
            }[kind]
        )
        passed += margin_p_value(lost, counts, 1.0, margin) <= 0.05
    assert passed <= 200 * (0.05 + 2 * np.sqrt(0.05 * 0.95 / 200))


def test_impossible_loss_is_excluded_and_one_conversation_decides_nothing():
    counts = np.ones(6)
    assert margin_p_value(np.full(6, 0.5), counts, 1.0, 0.2) == 1.0
    assert margin_p_value(np.zeros(6), counts, 1.0, 1.0) == 0.0
    assert loss_bound(np.ones(6), counts, 1.0) == 1.0
    assert loss_bound(np.array([0.3]), np.array([2.0]), 1.0) is None
    assert loss_bound(np.array([0.3, 0.0]), np.array([2.0, 0.0]), 1.0) is None
    # As many conversations again, all like these, say more.
    assert margin_p_value(np.zeros(6), counts, 1.0, 0.2, growth=3) < margin_p_value(np.zeros(6), counts, 1.0, 0.2)
    with pytest.raises(ValueError, match="not empty"):
        by_cluster([], [])


def test_d_z_is_the_mean_in_standard_deviations():
    assert cohens_dz(np.array([1, 2, 3])) == pytest.approx(2.0)
    assert cohens_dz(np.array([0.1, 0.1, 0.1])) is cohens_dz(np.array([1.0])) is None
