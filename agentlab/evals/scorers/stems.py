"""What a text says, as a set: stems of its words and its numbers, without what carries nothing and what is denied."""

from __future__ import annotations

import functools
import re

from agentlab.evals.scorers.words import normalise

SAY_NOTHING = """
of in on at to for from by with and or as is was were are be been it its he she his her they their them this that these
those which who whom what when where there i you we my your our had has have do does did will would can could about
around approximately likely also so very just up out into than then but if
"""
DENY = "not never no isnt wasnt arent werent dont doesnt didnt cannot cant neither nor without"
COUNT = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
EMPTY, NOT = frozenset(SAY_NOTHING.split()), frozenset(DENY.split())
NUMBERS = {word: number for number, word in enumerate(COUNT.split())}
NUMBERS |= {word: 30 + 10 * place for place, word in enumerate(TENS.split())} | {"once": 1, "twice": 2}


@functools.lru_cache(maxsize=512)
def content(text: str) -> frozenset[str]:
    """Stems and numbers of the words that say something and are not denied."""
    words = normalise(re.sub(r"(?<=\w)['\u2019]s\b", "", text).replace("-", " ")).split()
    found = set()
    for place, word in enumerate(words):
        denied = place > 0 and words[place - 1] in NOT
        if word not in EMPTY and not denied:
            found.add(stem(word))
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A number as its digits; else without the endings of plurals and verbs."""
    if word in NUMBERS:
        return str(NUMBERS[word])
    if number := re.fullmatch(r"(\d{1,30})(st|nd|rd|th|s)?", word):
        return str(int(number[1]))
    for ending in ("ing", "ies", "es", "ed", "ly", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] else word
