"""Sign flips and maxT against brute force and hand counts; the detectable difference against simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agentlab.evals.compare.family import constant_shift_p_value
from agentlab.evals.stats.sign_flips import DRAWS, SignFlips, sums_under_flips

COLUMN = st.lists(st.integers(-5, 5), min_size=2, max_size=9)


def p_of(sums, *, two_sided=False):
    return SignFlips(np.array(sums, dtype=float)[:, None], two_sided=two_sided).test().p[0]


@settings(max_examples=60)
@given(COLUMN, st.randoms())
def test_a_permutation_test_is_counted_over_all_signs_and_forgets_order(sums, random):
    observed = sum(sums)
    every = [sum(s * v for s, v in zip(signs, sums, strict=True)) for signs in product((1, -1), repeat=len(sums))]
    assert p_of(sums) == pytest.approx(np.mean([value >= observed for value in every]))
    assert p_of(sums, two_sided=True) == pytest.approx(np.mean([abs(value) >= abs(observed) for value in every]))
    assert p_of([-v for v in sums], two_sided=True) == p_of(sums, two_sided=True), "A against B is B against A"
    assert p_of(random.sample(sums, len(sums))) == pytest.approx(p_of(sums))


def test_many_conversations_are_sampled_and_the_same_seed_gives_the_same_p():
    assert p_of(np.sqrt(np.arange(1, 31))) == 1 / (DRAWS + 1)
    noise = np.random.default_rng(0).normal(0.3, 1, 30)
    assert p_of(noise, two_sided=True) == p_of(noise, two_sided=True)
    assert p_of(noise, two_sided=True) == pytest.approx(stats.ttest_1samp(noise, 0).pvalue, abs=0.02)
    assert p_of(np.r_[noise, np.zeros(70)]) == p_of(noise), "what differs nowhere cannot tell"


def test_all_measures_are_flipped_by_the_same_signs():
    sums = np.random.default_rng(0).normal(size=(20, 3))
    drawn = SignFlips(np.c_[sums, 2 * sums[:, :1]]).all_sums
    assert drawn[:, 0] == pytest.approx(drawn[:, 3], abs=1e-4)
    columns = np.random.default_rng(1).normal(size=(4, 2))
    every = np.array([np.array(signs) @ columns for signs in product((1, -1), repeat=4)])
    assert np.sort(sums_under_flips(columns, 5), axis=0) == pytest.approx(np.sort(every, axis=0))


def test_step_down_max_t_written_out():
    random = np.random.default_rng(5)
    sums = random.normal(0.4, 1, (9, 4))
    units = sums / np.sqrt((sums**2).sum(axis=0))
    every = np.array([np.array(signs) @ units for signs in product((1, -1), repeat=9)])
    observed = units.sum(axis=0)
    order, reached, expected = np.argsort(-observed), 0.0, np.empty(4)
    for rank, column in enumerate(order):
        left = every[:, order[rank:]].max(axis=1)
        reached = max(reached, float((left >= observed[column] - 1e-9).mean()))
        expected[column] = reached
    tested = SignFlips(sums).test()
    assert tested.p_adjusted == pytest.approx(expected)
    assert (tested.p_adjusted >= tested.p - 1e-12).all()
    only = SignFlips(sums).test(np.array([True, False, True, False])).p_adjusted
    assert (only[[1, 3]] == 1).all()
    assert (only[[0, 2]] <= expected[[0, 2]] + 1e-12).all(), "a smaller family pays less"


def test_measures_that_move_together_pay_less_than_after_holm():
    random = np.random.default_rng(0)
    one = random.normal(0.9, 1, 10)
    tested = SignFlips(
        np.column_stack([one, one + random.normal(0, 0.01, 10), one + random.normal(0, 0.01, 10)])
    ).test()
    assert tested.p_adjusted.max() < 1.5 * tested.p.max() < 3 * tested.p.min()


def test_constant_values_are_no_evidence():
    tested = SignFlips(np.zeros((5, 2))).test()
    assert (tested.p == 1).all()
    assert (tested.p_adjusted == 1).all()
    assert list(SignFlips(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])).minimum_p_values()) == [0.25, 0.5]
    # .1 + .2 - .3 is not 0 to the last digit.
    assert list(SignFlips(np.array([[0.1 + 0.2 - 0.3], [1.0]])).minimum_p_values()) == [0.5]


def test_two_runs_of_one_making_rarely_differ_by_the_same_on_every_turn():
    assert constant_shift_p_value(1) == 0.5
    random = np.random.default_rng(4)
    for values, weights in (((0, 1), (0.5, 0.5)), ((1, 2, 3), (0.3, 0.4, 0.3))):
        a, b = (random.choice(values, p=weights, size=(20000, 3)) for _ in range(2))
        d = b - a
        same = (d[:, 0] > 0) & (d == d[:, :1]).all(axis=1)
        assert same.mean() <= constant_shift_p_value(3) * 1.1


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("size", [14, 40, 300])
def test_p_of_binary_differences_is_exact_for_any_number(size, two_sided):
    random = np.random.default_rng(size)
    signs = random.choice([-1.0, 1.0], size, p=[0.4, 0.6])
    worse = int((signs > 0).sum())
    expected = stats.binomtest(worse, size, alternative="two-sided" if two_sided else "greater").pvalue
    for beside in (signs, random.normal(size=size)):
        tested = SignFlips(np.c_[signs, beside], two_sided=two_sided).test()
        assert tested.p[0] == pytest.approx(expected, rel=1e-6), "another column does not matter"
    assert SignFlips(signs[:, None], two_sided=two_sided).test().p_adjusted[0] == tested.p[0]


def test_p_of_whole_sums_is_exact_and_few_differences_are_enumerated():
    random = np.random.default_rng(0)
    sums = random.choice([-3.0, -2.0, 2.0, 3.0, 5.0], 30)
    drawn = np.abs(random.choice([-1, 1], (100_000, 30)) @ sums) >= abs(sums.sum()) - 1e-9
    assert SignFlips(sums[:, None] / 4, two_sided=True).test().p[0] == pytest.approx(drawn.mean(), abs=6e-3)
    few = np.r_[random.normal(0.5, 1, 9), np.zeros(21)]
    alone = SignFlips(few[:, None]).test().p[0]
    assert SignFlips(np.c_[few, sums]).test().p[0] == alone == round(alone * 2**9) / 2**9
