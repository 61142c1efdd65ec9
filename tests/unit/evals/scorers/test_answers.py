"""Scorers of answers, retrieval, citations and refusals on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import (
    answer,
    citations,
    lookup,
    memory_recall,
    memory_writes,
    refusal,
    retrieval,
    similarity,
    tools,
    words,
)
from support.scoring import outcome, search_event, values


@pytest.mark.parametrize(
    "text, references, f1, exact",
    [
        ("The Netherlands.", ["Netherlands", "Holland"], 1.0, 1.0),
        ("It was the Netherlands [1].", ["Netherlands"], 0.5, 0.0),
        ("7.32 m wide", ["7.32 m", "about seven metres"], 0.8, 0.0),
        ("no idea", ["yes"], 0.0, 0.0),
        ("", ["yes"], 0.0, 0.0),
    ],
)
def test_answers(text, references, f1, exact):
    turn = Turn(user="q", reference_answers=references)
    assert values(answer.score(turn, outcome(text))) == {"answer_f1": pytest.approx(f1), "exact_match": exact}


@pytest.mark.parametrize(
    ("text", "reference", "f1"),
    [
        ("It\u2019s Paul\u2019s", "It's Paul's", 1),
        ("\u00aboui\u00bb", "Oui.", 1),
        ("Cafe\u0301", "Caf\u00e9", 1),
        ("\u732b\u306f\u3044\u307e\u3059\u3002", "\u732b\u306f\u3044\u307e\u3059", 1),
        ("\u732b", "\u9ed2\u732b", 2 / 3),
        ("\u0939\u093f\u0928\u094d\u0926\u0940\u0964", "\u0939\u093f\u0928\u094d\u0926\u0940", 1),
        ("\u0939\u093e", "\u0939\u0940", 0),
    ],
)
def test_other_scripts_than_ascii_are_compared_word_by_word(text, reference, f1):
    assert words.f1(words.normalise(text), words.normalise(reference)) == pytest.approx(f1)


@given(st.text(), st.text())
def test_f1_is_symmetric_and_bounded(one, other):
    one, other = words.normalise(one), words.normalise(other)
    assert words.f1(one, other) == words.f1(other, one)
    assert 0 <= words.f1(one, other) <= 1
    assert words.f1(one, one) == 1


def test_similarity_takes_the_nearest_reference_and_an_empty_reply_is_0():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    turn = Turn(user="q", reference_answers=["far", "near"])
    assert values(similarity.score(turn, outcome("x", embed=lambda texts: vectors))) == {"semantic_similarity": 0.6}
    assert values(similarity.score(turn, outcome(" "))) == {"semantic_similarity": 0.0}


def test_retrieval_and_citations():
    turn = Turn(user="q", relevant_doc_ids=["a", "b"])
    seen = outcome(cited=("b", "x"), events=(search_event("x", "b"), search_event("b", "c")))
    scores = values(retrieval.score(turn, seen))
    assert (scores["retrieval_recall"], scores["retrieval_mrr"]) == (0.5, 0.5)
    assert values(citations.score(turn, seen)) == {"citation_precision": 0.5, "citation_recall": 0.5}
    nothing = outcome()
    assert set(values(retrieval.score(turn, nothing)).values()) == {0.0}
    assert values(citations.score(turn, nothing)) == {"citation_precision": 0.0, "citation_recall": 0.0}


@pytest.mark.parametrize(
    "text, declined",
    [
        ("The documents do not say.", True),
        ("I'm sorry, but the passages don't mention that.", True),
        ("There is no information about ticket prices.", True),
        ("I don't know.", True),
        ("Unfortunately, the answer cannot be determined from the context.", True),
        ("", True),
        ("Sorry, I can't answer that.", True),
        ("The handbook does not say. I can\u2019t tell.", True),
        ("It is not specified.", True),
        ("None of the documents mention this.", True),
        ("N/A", True),
        ("The policy is not valid abroad.", False),
        ("An indirect free kick.", False),
        ("No, the goal does not count.", False),
    ],
)
def test_declining(text, declined):
    assert refusal.declines(text) is declined
    if not text:
        # Who says nothing does neither.
        assert values(refusal.score(Turn(user="q", unanswerable=True), outcome(text))) == {"refusal_accuracy": 0}
        assert values(refusal.score(Turn(user="q", relevant_doc_ids=["a"]), outcome(text))) == {"answered": 0}
        return
    unanswerable = refusal.score(Turn(user="q", unanswerable=True), outcome(text))
    assert values(unanswerable) == {"refusal_accuracy": float(declined)}
    answerable = refusal.score(Turn(user="q", relevant_doc_ids=["a"]), outcome(text))
    assert values(answerable) == {"answered": float(not declined)}


@pytest.mark.parametrize(
    "text",
    [
        "The rules do not allow a fourth substitute.",
        "The kick is not given and play goes on.",
        "The documents do not give a number. However, a team has at most eleven players.",
        "Sorry to hear that! You may change three players.",
    ],
)
def test_an_answer_that_denies_is_no_refusal_by_wording_alone(text):
    assert not refusal.declines(text)
    assert values(refusal.score(Turn(user="q", unanswerable=True), outcome(text))) == {"refusal_accuracy": 0}
    assert values(refusal.score(Turn(user="q", relevant_doc_ids=["a"]), outcome(text))) == {"answered": 1}


@pytest.mark.parametrize("needed, events, value", [(True, (search_event("a"),), 1), (True, (), 0), (False, (), 1)])
def test_the_decision_to_look_up(needed, events, value):
    turn = Turn(user="q", needs_document_lookup=needed)
    assert values(lookup.score(turn, outcome(events=events))) == {"lookup_accuracy": value}


def test_a_scorer_that_does_not_apply_names_no_metric():
    bare = Turn(user="q")
    for scorer in (answer, citations, lookup, memory_recall, memory_writes, refusal, retrieval, similarity, tools):
        assert scorer.metrics(bare) == ()
    declining = Turn(user="q", unanswerable=True, reference_answers=["I cannot say."], relevant_doc_ids=[])
    assert answer.metrics(declining) == ()
