"""BM25 in scripts without blanks, with vowel signs and with optional marks; other text is not touched."""

from __future__ import annotations

import pytest

from agentlab.knowledge.bm25 import Bm25Index
from agentlab.knowledge.words import separate_words

TEXTS = [
    "东京是日本的首都。",
    "北京是中国的首都",
    "ประเทศไทยอยู่ในเอเชีย กรุงเทพมหานครเป็นเมืองหลวง",
    "プログラミング言語Pythonの入門",
    "हिन्दी भाषा में पुस्तक।",
    "أَحْمَدُ ذَهَبَ إِلَى المَدْرَسَةِ",
    "ספר עִבְרִית חדש",
    "Ordinary English text about naïve apples",
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("日本首都", 0),
        ("中国", 1),
        ("กรุงเทพ", 2),
        ("เมืองหลวง", 2),
        ("入門", 3),
        ("プログラミング", 3),
        ("Python", 3),
        ("पुस्तक", 4),
        ("احمد", 5),
        ("المدرسه", 5),
        ("עברית", 6),
        ("apples", 7),
    ],
)
def test_words_are_found_in_every_script(query: str, best: int) -> None:
    scores = Bm25Index.build(TEXTS).scores(query)
    assert scores[best] > 0 and scores.argmax() == best


@pytest.mark.parametrize("query", ["水", "ช้าง", "किताब", "طائرة"])
def test_words_that_no_text_has_are_not_found(query: str) -> None:
    assert Bm25Index.build(TEXTS).scores(query).max() == 0


@pytest.mark.parametrize("text", ["", "The ball is round.", "Naïve café, Straße, Київ, Ελλάδα", "x² ≤ 5 — “so”"])
def test_other_text_is_not_touched(text: str) -> None:
    assert separate_words(text) == (text, [])


def test_a_character_alone_is_a_word_and_neighbours_are_pairs() -> None:
    assert separate_words("水 and 東京都")[1] == ["水", "東京", "京都"]
