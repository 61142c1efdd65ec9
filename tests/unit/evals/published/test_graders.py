"""The published rules on cases worked out by hand from their scripts, and pinned: a change of one is meant."""

from __future__ import annotations

import math
import random

import pytest

from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.published.graders import GRADERS, Bleu, Drop, Hotpotqa, Locomo, Rouge, Squad
from agentlab.evals.scorers.overlap import lcs_length

PINNED = "678217a86a9707a220702bf092cee0fec5e685c378fd97751be9183b283ce2e8"


def test_graders_are_those_that_reproduced_the_figures():
    """After a change of these, run `agentlab reproduce` on the packs, then change this test."""
    assert set(fingerprints(GRADERS.values(), "none").values()) == {PINNED}


@pytest.mark.parametrize(
    ("answer", "reference", "em", "f1"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1, 1),
        ("Mason\u2013Dixon", "Mason-Dixon", 0, 0),  # only ASCII punctuation goes
        ("a big red dog", "red dog dog", 0, 4 / 6),
        ("v\\u00e4dret", "v\u00e4dret", 0, 0),  # an escape written out stays one
        ("", "The", 1, 1),
        ("something", "The", 0, 0),
    ],
)
def test_squad(answer, reference, em, f1):
    scores = Squad.grade(answer, [reference])
    assert (scores["em"], scores["f1"]) == (em, pytest.approx(f1))


def test_squad_uses_the_best_reference_per_metric_and_acc_is_containment():
    scores = Squad.grade("born in New York City", ["York", "New York City, born there"])
    assert (scores["acc"], scores["em"]) == (1, 0)
    assert scores["f1"] == pytest.approx(8 / 10)
    assert Squad.grade("whatever", ["The The"])["acc"] == 1, "an empty reference is part of everything"


@pytest.mark.parametrize(
    ("answer", "reference", "f1"),
    [("yes it is", "yes", 0), ("yes", "yes", 1), ("no", "no way", 0), ("", "the", 0), ("in Paris", "Paris", 2 / 3)],
)
def test_hotpotqa_gives_nothing_for_a_part_of_yes_or_no_nor_for_nothing(answer, reference, f1):
    assert Hotpotqa.grade(answer, [reference])["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "reference", "em", "f1"),
    [
        ("dog dog dog", "dog", 0, 1.0),  # sets of words; the spans differ
        ("1,000 men", "1000 men", 1, 1.0),
        ("12 men", "13 men", 0, 0.0),  # no number of the reference is there
        ("about 13", "13 men", 0, 0.5),
        ("well-known man", "well known", 0, 0.8),
        ("one two three", "one", 0, 0.5),
        ("a b c d e f", "b c", 0, 0.57),  # to two digits
        ("3.0", "3", 1, 1.0),
    ],
)
def test_drop(answer, reference, em, f1):
    scores = Drop.grade(answer, [reference])
    assert (scores["em"], scores["f1"]) == (em, f1)


def test_locomo_keeps_articles_apostrophes_and_hyphens():
    assert Locomo.grade("The cat, the cat.", ["the cat"])["f1"] == 1
    assert Locomo.grade("Anna's", ["Anna"])["f1"] == 0
    assert Locomo.grade("", [""])["f1"] == 0


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence():
    assert Rouge.grade("police killed the gunman", ["police kill the gunman"])["RougeL"] == pytest.approx(6 / 8)
    assert Rouge.grade("the gunman kill police", ["police kill the gunman"])["RougeL"] == pytest.approx(4 / 8)
    assert Rouge.grade("?", ["!"])["RougeL"] == 0


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("It's John's.", "john's .", 3 / 5),
        ("J.K. Rowling", "J.K. Rowling, George R.R. Martin", pytest.approx(math.exp(1 - 7 / 2))),
        ("I can't, but I cannot.", "can not", 2 / 9),
        ("12 March, 2,300", "12 march , 2,300", 1),
        ("", "x", 0),
        ("y", "x", 0),
    ],
)
def test_bleu_counts_words_as_treebanks_part_them(answer, reference, value):
    assert Bleu.grade(answer, [reference])["bleu"] == value


def test_a_longest_common_subsequence_is_that_of_the_table():
    def by_table(one, other):
        row = [0] * (len(other) + 1)
        for x in one:
            diagonal = 0
            for j, y in enumerate(other, 1):
                diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
        return row[-1]

    drawn = random.Random(0)
    for _ in range(200):
        one, other = (drawn.choices("abcd", k=drawn.randrange(12)) for _ in range(2))
        assert lcs_length(one, other) == by_table(one, other)
