"""Stems of a text: its content words and numbers as a set, without function words and negated words."""

from __future__ import annotations

import functools
import re

from agentlab.evals.scorers.tables import WORDS
from agentlab.evals.scorers.words import normalise

IGNORED, NEGATING, NUMBERS = WORDS["function_words"], WORDS["negations"], WORDS["small_numbers"]


def content_stems(text: str) -> frozenset[str]:
    """Return the stems and numbers of a text, without function words and without a word right after a negation."""
    return signed_stems(text)[0]


@functools.lru_cache(maxsize=512)
def signed_stems(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the stems and numbers of a text without function words: plain ones, and those right after a negation."""
    words = normalise(re.sub(r"(?<=\w)['\u2019]s\b", "", text).replace("-", " ")).split()
    signs = [before in NEGATING for before in ["", *words]]
    stems = [(stem(word), sign) for word, sign in zip(words, signs, strict=False) if word not in IGNORED]
    return frozenset(word for word, sign in stems if not sign), frozenset(word for word, sign in stems if sign)


@functools.lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a number as digits, another word without its plural or verb ending."""
    if word in NUMBERS:
        return str(NUMBERS[word])
    if number := re.fullmatch(r"(\d{1,30})(st|nd|rd|th|s)?", word):
        return str(int(number[1]))
    for ending in ("ing", "ies", "es", "ed", "ly", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] else word
