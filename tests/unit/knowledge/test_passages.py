"""Passages: exact offsets, never too long, nothing lost, cut where a reader would."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.data.documents import Document
from agentlab.knowledge.passages import count_tokens, split

TEXTS = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="ab .\n", max_size=400),
    st.lists(
        st.sampled_from(["word", "Longer words here.", "\n\n", " ", "1234567", "\u4e2d\u6587\u3002", "\n"]), max_size=80
    ).map("".join),
)


def document(text: str, doc_id: str = "d") -> Document:
    return Document(doc_id=doc_id, title="T", text=text)


@given(TEXTS, st.integers(1, 40))
def test_passages_are_exact_short_and_cover_the_text(text: str, max_tokens: int) -> None:
    passages = split(document(text), max_tokens)
    assert [p.id for p in passages] == [f"d#{n}" for n in range(len(passages))]
    assert all(p.text == text[p.start : p.end] and p.title == "T" for p in passages)
    assert all(count_tokens(p.text) <= max_tokens for p in passages)
    if not text.strip():
        assert passages == ()
        return
    assert passages[0].start == 0
    assert passages[-1].end == len(text)
    for before, after in pairwise(passages):
        assert before.start < after.start == before.end < after.end


@given(TEXTS, st.integers(1, 40))
def test_together_the_passages_are_the_text(text: str, max_tokens: int) -> None:
    passages = split(document(text), max_tokens)
    assert "".join(p.text for p in passages) == (text if text.strip() else "")
    assert sum(count_tokens(p.text) for p in passages) == (count_tokens(text) if text.strip() else 0)


def test_paragraphs_go_before_sentences_and_sentences_before_words() -> None:
    paragraphs = "One two three four. Five six.\n\nSeven eight nine ten. Eleven."
    assert [p.text for p in split(document(paragraphs), 9)] == [
        "One two three four. Five six.\n\n",
        "Seven eight nine ten. Eleven.",
    ]
    sentences = "One two three. Four five six. Seven eight nine."
    assert [p.text for p in split(document(sentences), 6)] == [
        "One two three. ",
        "Four five six. ",
        "Seven eight nine.",
    ]
    words = "one two three four five six"
    assert [p.text for p in split(document(words), 3)] == ["one two three ", "four five six"]


def test_text_without_spaces_and_endless_blanks_are_cut() -> None:
    assert [len(p.text) for p in split(document("x" * 100), 5)] == [30, 24, 24, 22]
    assert max(len(p.text) for p in split(document("a" + " " * 10_000 + "b"), 5)) < 100


def test_ids_stay_unique_where_doc_ids_hold_a_hash() -> None:
    ids = [p.id for name in ("a", "a#0", "a#0#0") for p in split(document("one two", name), 1)]
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_passages_of_nothing_are_refused(max_tokens: int) -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        split(document("x"), max_tokens)


def test_megabytes_are_split_in_seconds() -> None:
    passages = split(document("words and more words, 123 times.\n" * 100_000), 200)
    assert passages[-1].end == 33 * 100_000
