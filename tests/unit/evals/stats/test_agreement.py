"""Prediction-powered intervals contain the human mean, and a judge narrows them."""

from __future__ import annotations

import numpy as np
import pytest

from agentlab.evals.stats.agreement import agreement, estimate

CONVERSATIONS, TURNS = 12, 8


def a_run(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return a judge's scores for two flows, human labels, and clusters; a score of 1 is right, others are guessed."""
    size = CONVERSATIONS * TURNS
    hard = np.repeat(random.random(CONVERSATIONS) < 0.5, TURNS)
    doubts = random.random((size, 2)) < np.where(hard, 0.7, 0.1)[:, None]
    judge = np.where(doubts, 0.5, 1.0)
    labels = np.where(doubts, random.random((size, 2)) < 0.4, random.random((size, 2)) < 0.97).astype(float)
    return judge, labels, [f"c{position // TURNS}" for position in range(size)]


def labelled(truth: np.ndarray, count: int, seed: int) -> np.ndarray:
    labels = np.full_like(truth, np.nan)
    places = np.random.default_rng(seed).choice(len(truth), count, replace=False)
    labels[places] = truth[places]
    return labels


def test_intervals_hold_the_mean_and_the_difference_of_all():
    covers = []
    for seed in range(150):
        judge, human, clusters = a_run(np.random.default_rng(seed))
        labels = labelled(human, 30, seed)
        for scores, labelled_part, truth in (
            (judge[:, 0], labels[:, 0], human[:, 0]),
            (judge[:, 1] - judge[:, 0], labels[:, 1] - labels[:, 0], human[:, 1] - human[:, 0]),
        ):
            low, high = estimate(scores, labelled_part, clusters).interval
            covers.append(low <= truth.mean() <= high)
    assert np.mean(covers) >= 0.94


def test_a_judge_narrows_the_interval():
    widths = {"judge": [], "no judge": []}
    for seed in range(100):
        judge, human, clusters = a_run(np.random.default_rng(seed))
        for name in widths:
            labels = labelled(human, 30, seed)
            used = np.zeros_like(judge) if name == "no judge" else judge
            low, high = estimate(used[:, 0], labels[:, 0], clusters).interval
            widths[name].append(high - low)
    means = {name: float(np.mean(results)) for name, results in widths.items()}
    assert means["judge"] < means["no judge"]


def test_with_every_reply_labelled_the_estimate_is_the_human_mean():
    judge, human, clusters = a_run(np.random.default_rng(0))
    assert estimate(judge[:, 0], human[:, 0], clusters).value == pytest.approx(human[:, 0].mean())


def test_few_labels_give_no_interval_and_a_constant_judge_is_not_used():
    judge, human, clusters = a_run(np.random.default_rng(0))
    two = np.full(len(human), np.nan)
    two[:2] = human[:2, 0]
    assert estimate(judge[:, 0], two, clusters).interval is None
    some = np.where(np.arange(len(human)) % 2, human[:, 0], np.nan)
    assert estimate(np.ones(len(human)), some, clusters).value == pytest.approx(np.nanmean(some))


def test_agreement_is_that_of_a_table_worked_by_hand():
    """Textbook table: of 50 replies both call 20 good and 15 bad, kappa .4."""
    judge = np.array([1.0] * 25 + [0.0] * 25)
    labels = np.array([1.0] * 20 + [0.0] * 5 + [1.0] * 10 + [0.0] * 15)
    result = agreement(judge[:, None], labels[:, None])
    assert result.kappa == pytest.approx(0.4) and result.agreement == pytest.approx(0.7)
    assert result.bias == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="there is no label"):
        agreement(judge[:, None], np.full((50, 1), np.nan))


def test_turns_that_need_no_label_say_nothing_about_the_judge():
    """A third of the replies is empty, which needs no label; the judge fails many good replies."""
    covers, bias = [], []
    for seed in range(150):
        random = np.random.default_rng(seed)
        truth = (random.random(120) < 0.8).astype(float)
        judge = truth * (random.random(120) < 0.6)
        empty = random.random(120) < 1 / 3
        truth[empty] = judge[empty] = 0
        labels = np.where(empty, 0, np.nan)
        request = random.choice(np.flatnonzero(~empty), 20, replace=False)
        labels[request] = truth[request]
        clusters = [f"c{position // 5}" for position in range(120)]
        result = estimate(judge, labels, clusters, needs_no_label=empty)
        covers.append(result.interval[0] <= truth.mean() <= result.interval[1])
        bias.append(result.value - truth.mean())
    assert np.mean(covers) >= 0.94 and abs(np.mean(bias)) < 0.02
