"""Small talk is distinguished from questions, in many languages and on our own sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.data.datasets import load_dataset
from agentlab.knowledge.small_talk import is_small_talk

COURTESY = """
Thanks! | ok thx, all clear now | Hello | Merci beaucoup ! | Vielen Dank | ¡Muchas gracias! | Спасибо большое
谢谢你 | ありがとうございます | 감사합니다 | شكرا جزيلا | धन्यवाद | 👍 | ..."""
REQUESTS = """
How wide is the goal? | Thanks! And how high? | goal width | Thanks, tell me about offside | Hello, law 11
谢谢\uff0c球门有多宽\uff1f | Danke. Wie breit ist das Tor? | ok so what happens next | Say both numbers once more please
I would like to know more about goalkeepers | Great, the second one: throw-ins of players under fifteen years"""


def texts(lines: str) -> list[str]:
    return [text.strip() for text in lines.replace("\n", "|").split("|") if text.strip()]


@pytest.mark.parametrize("text", ["", *texts(COURTESY)])
def test_courtesy_wants_nothing(text):
    assert is_small_talk(text)


@pytest.mark.parametrize("text", texts(REQUESTS))
def test_in_doubt_a_message_wants_something(text):
    assert not is_small_talk(text)


def test_no_question_of_our_sets_is_taken_for_small_talk():
    for name in ("laws", "research"):
        turns = [t for c in load_dataset(Path("datasets") / name).conversations for t in c.turns]
        assert not [t.user for t in turns if t.needs_document_lookup and is_small_talk(t.user)]
    laws = [t for c in load_dataset(Path("datasets/laws")).conversations for t in c.turns]
    none = [t.user for t in laws if t.needs_document_lookup is False]
    assert sum(map(is_small_talk, none)) / len(none) > 0.5
