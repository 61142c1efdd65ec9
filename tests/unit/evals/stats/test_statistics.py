"""Bounds, compared with results by hand, by brute force or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from agentlab.evals.stats.statistics import (
    by_cluster,
    cohens_dz,
    loss_bound,
    margin_p_value,
)


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


def test_longest_conversation_of_the_data_set_widens_the_bound():
    zeros, ones = np.zeros(60), np.ones(60)
    assert loss_bound(zeros, ones, 1.0, longest=1.0) == loss_bound(zeros, ones, 1.0)
    longer = loss_bound(zeros, ones, 1.0, longest=60.0)
    assert longer > 0.5, "one unseen conversation of 60 turns weighs as much as all others"
    assert margin_p_value(zeros, ones, 1.0, longer, 60.0) == pytest.approx(0.05, abs=1e-6)


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
    with pytest.raises(ValueError, match="not empty"):
        by_cluster([], [])


def test_d_z_is_the_mean_in_standard_deviations():
    assert cohens_dz(np.array([1, 2, 3])) == pytest.approx(2.0)
    assert cohens_dz(np.array([0.1, 0.1, 0.1])) is cohens_dz(np.array([1.0])) is None
