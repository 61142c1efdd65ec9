"""Stems of a text: its content words and numbers as a set, without function words and negated words."""

from __future__ import annotations

import functools
import re

from agentlab.evals.scorers.words import normalise

FUNCTION_WORDS = """
of in on at to for from by with and or as is was were are be been it its he she his her they their them this that these
those which who whom what when where there i you we my your our had has have do does did will would can could about
around approximately likely also so very just up out into than then but if
"""
NEGATIONS = "not never no isnt wasnt arent werent dont doesnt didnt cannot cant neither nor without"
ZERO_TO_TWENTY = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
IGNORED, NEGATING = frozenset(FUNCTION_WORDS.split()), frozenset(NEGATIONS.split())
NUMBERS = {word: number for number, word in enumerate(ZERO_TO_TWENTY.split())}
NUMBERS |= {word: 30 + 10 * position for position, word in enumerate(TENS.split())} | {"once": 1, "twice": 2}


@functools.lru_cache(maxsize=512)
def content_stems(text: str) -> frozenset[str]:
    """Return the stems and numbers of a text, without function words and without a word right after a negation."""
    words = normalise(re.sub(r"(?<=\w)['\u2019]s\b", "", text).replace("-", " ")).split()
    stems = set()
    for position, word in enumerate(words):
        negated = position > 0 and words[position - 1] in NEGATING
        if word not in IGNORED and not negated:
            stems.add(stem(word))
    return frozenset(stems)


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
