"""Tells by its words whether a turn has something to remember; no model is asked.

states_a_fact("My sister moved to Bergen.")          # True
states_a_fact("What is the time at the moment?")     # False: it only asks
states_a_fact("谢谢")                                 # False: courtesy

A turn tells something if one of its sentences neither asks nor is mere courtesy. That holds in any language that marks
its questions; requests without a question mark are known by their first words in English only. On `datasets/memory` it
is right about .8 of 510 turns (`tests/unit/flows/coordinator/test_gate.py` holds the bound).
"""

from __future__ import annotations

import re

from agentlab.knowledge.small_talk import has_question, is_small_talk

_SENTENCE = re.compile(
    r"[^.!?\n\uff01\uff1f\u3002\u061f\u037e\u055e\u0964]+[.!?\uff01\uff1f\u3002\u061f\u037e\u055e\u0964]*"
)
_LETTER = re.compile(r"[^\W\d_]")
MIN_LETTERS = 4
"""Of a sentence that tells something; Chinese says it in so many signs."""


def states_a_fact(prompt: str) -> bool:
    return any(_tells(sentence.strip()) for sentence in _SENTENCE.findall(prompt))


def _tells(sentence: str) -> bool:
    if len(_LETTER.findall(sentence)) < MIN_LETTERS or is_small_talk(sentence):
        return False
    return not has_question(sentence)
