"""Prediction-powered intervals contain the human mean, and a judge narrows them."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.evals.stats.agreement import agreement, estimate

CONVERSATIONS, TURNS = 12, 8


def a_run(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return judgements that are right at 1 and guessed otherwise, for two flows; human labels; clusters."""
    size = CONVERSATIONS * TURNS
    hard = np.repeat(random.random(CONVERSATIONS) < 0.5, TURNS)
    doubts = random.random((size, 2)) < np.where(hard, 0.7, 0.1)[:, None]
    judged = np.where(doubts, 0.5, 1.0)
    told = np.where(doubts, random.random((size, 2)) < 0.4, random.random((size, 2)) < 0.97).astype(float)
    return judged, told, [f"c{place // TURNS}" for place in range(size)]


def labelled(told: np.ndarray, count: int, seed: int) -> np.ndarray:
    labels = np.full_like(told, np.nan)
    places = np.random.default_rng(seed).choice(len(told), count, replace=False)
    labels[places] = told[places]
    return labels


def test_intervals_hold_the_mean_and_the_difference_of_all():
    held = []
    for seed in range(150):
        judged, told, clusters = a_run(np.random.default_rng(seed))
        labels = labelled(told, 30, seed)
        for scores, said, truth in (
            (judged[:, 0], labels[:, 0], told[:, 0]),
            (judged[:, 1] - judged[:, 0], labels[:, 1] - labels[:, 0], told[:, 1] - told[:, 0]),
        ):
            low, high = estimate(scores, said, clusters).interval
            held.append(low <= truth.mean() <= high)
    assert np.mean(held) >= 0.94


def test_a_judge_narrows_the_interval():
    widths = {"judge": [], "no judge": []}
    for seed in range(100):
        judged, told, clusters = a_run(np.random.default_rng(seed))
        for name in widths:
            labels = labelled(told, 30, seed)
            used = np.zeros_like(judged) if name == "no judge" else judged
            low, high = estimate(used[:, 0], labels[:, 0], clusters).interval
            widths[name].append(high - low)
    means = {name: float(np.mean(found)) for name, found in widths.items()}
    assert means["judge"] < means["no judge"]


def test_with_every_reply_labelled_the_estimate_is_what_people_say():
    judged, told, clusters = a_run(np.random.default_rng(0))
    assert estimate(judged[:, 0], told[:, 0], clusters).value == pytest.approx(told[:, 0].mean())


def test_few_labels_give_no_interval_and_a_constant_judge_is_not_used():
    judged, told, clusters = a_run(np.random.default_rng(0))
    two = np.full(len(told), np.nan)
    two[:2] = told[:2, 0]
    assert estimate(judged[:, 0], two, clusters).interval is None
    some = np.where(np.arange(len(told)) % 2, told[:, 0], np.nan)
    assert estimate(np.ones(len(told)), some, clusters).value == pytest.approx(np.nanmean(some))


def test_agreement_is_that_of_a_table_worked_by_hand():
    """Cohen's example form: 20 and 15 of 50 agree, kappa .4."""
    judged = np.array([1.0] * 25 + [0.0] * 25)
    told = np.array([1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15)
    found = agreement(judged[:, None], told[:, None])
    assert found.kappa == pytest.approx(0.4) and found.agreement == pytest.approx(0.7)
    assert found.bias == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="there is no label"):
        agreement(judged[:, None], np.full((50, 1), np.nan))


def test_turns_that_need_no_label_say_nothing_about_the_judge():
    """A third of the replies is empty, which needs no label; the judge fails many good replies."""
    held, bias = [], []
    for seed in range(150):
        random = np.random.default_rng(seed)
        told = (random.random(120) < 0.8).astype(float)
        judged = told * (random.random(120) < 0.6)
        empty = random.random(120) < 1 / 3
        told[empty] = judged[empty] = 0
        labels = np.where(empty, 0, np.nan)
        asked = random.choice(np.flatnonzero(~empty), 20, replace=False)
        labels[asked] = told[asked]
        clusters = [f"c{place // 5}" for place in range(120)]
        found = estimate(judged, labels, clusters, needs_no_label=empty)
        held.append(found.interval[0] <= told.mean() <= found.interval[1])
        bias.append(found.value - told.mean())
    assert np.mean(held) >= 0.94 and abs(np.mean(bias)) < 0.02
