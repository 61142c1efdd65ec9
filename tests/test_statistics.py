"""Intervals and the smallest visible difference, held against cases that can be worked out by hand or by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.evals.statistics import mean_with_interval, smallest_visible_difference


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcdef")), min_size=1, max_size=60))
def test_the_interval_holds_within_the_range_of_the_values(rows):
    values, clusters = zip(*rows, strict=True)
    mean, interval = mean_with_interval(values, clusters)
    assert mean == pytest.approx(np.mean(values))
    assert (interval is None) == (len(set(clusters)) < 2)
    if interval:
        assert min(values) - 1e-9 <= interval[0] <= interval[1] <= max(values) + 1e-9


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


def test_the_smallest_visible_difference_is_found_in_about_80_percent_of_runs():
    random = np.random.default_rng(2)
    clusters = [str(i // 3) for i in range(180)]
    visible = smallest_visible_difference(random.normal(0, 1, 180).tolist(), clusters)
    found = 0
    for _ in range(300):
        sample = random.normal(visible, 1, 180)
        by_cluster = sample.reshape(60, 3).mean(axis=1)
        found += abs(by_cluster.mean()) > 1.96 * by_cluster.std(ddof=1) / np.sqrt(60)
    assert 0.68 <= found / 300 <= 0.92


def test_one_conversation_cannot_tell():
    assert smallest_visible_difference([0.1, 0.2], ["a", "a"]) is None
    with pytest.raises(ValueError, match="not empty"):
        mean_with_interval([], [])
