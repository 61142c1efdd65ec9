"""Does the reply say what a reference says, whatever sentence stands around it? From 0 to 1, by the best reference.

What counts is the share of the reference's content that the reply has: dates as days, numbers as numbers ("two" is 2,
"1,500" is 1500), and the other words by their stems, without those that carry nothing. Words more than the reference
has cost nothing, so read it with `rouge_l`. Three things are wrong whatever else is said: a reply that declines, the
other one of yes and no, and none of the numbers where the reference has some. A word right after a "not" is not said.

Set and tested on answers that others had judged: `results/LOG.md`, `evals/bench/correctness.py`.
"""

from __future__ import annotations

import functools
import re

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import find_dates, share_of_date
from agentlab.evals.scorers.words import has_reference, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

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
OPENING = 60
"""Characters in which the first words stand."""
NUMBERS = {word: number for number, word in enumerate(COUNT.split())}
NUMBERS |= {word: 30 + 10 * place for place, word in enumerate(TENS.split())} | {"once": 1, "twice": 2}


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_correctness",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    said = strip_markers(outcome.reply.text)
    values = [correctness(said, reference) for reference in turn.reference_answers]
    best = max(range(len(values)), key=values.__getitem__)
    return {
        "answer_correctness": Score(
            value=values[best], reason=f"nearest reference: {turn.reference_answers[best][:120]}"
        )
    }


def correctness(said: str, reference: str) -> float:
    """The share of the reference's content in the reply; see the top of the file."""
    if declines(said) and not declines(reference):
        return 0.0
    said, reference = (re.sub(r"(?<=\d),(?=\d{3}\b)", "", text) for text in (said, reference))
    right, ours = polarity(reference), polarity(said)
    if right and ours:
        return float(right == ours)  # what follows is why
    if normalise(said) == normalise(reference):
        return 1.0
    dates, rest = find_dates(reference)
    our_dates, our_rest = find_dates(said)
    wanted, ours_there = content(rest), content(our_rest if dates else said)
    numbers = {word for word in wanted if _is_number(word)}
    if numbers and not numbers & ours_there:
        return 0.0
    parts = share_of_date(our_dates, dates) * 2 * len(dates) if dates else 0.0
    if dates and not parts:
        return 0.0
    total = len(wanted) + 2 * len(dates)
    if not total:
        return 0.0
    return (parts + len(wanted & ours_there)) / total


def polarity(text: str) -> str:
    """`yes` or `no` where one of them is among the first words, "" where neither or both are."""
    found = {word for word in normalise(text[:OPENING]).split()[:3] if word in ("yes", "no")}
    return found.pop() if len(found) == 1 else ""


@functools.lru_cache(maxsize=4096)
def content(text: str) -> frozenset[str]:
    """Stems and numbers of the words that say something and are not denied."""
    words = normalise(re.sub(r"(?<=\w)['\u2019]s\b", "", text).replace("-", " ")).split()
    found = set()
    for place, word in enumerate(words):
        denied = place > 0 and words[place - 1] in NOT
        if word not in EMPTY and not denied:
            found.add(stem(word))
    return frozenset(found)


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


def _is_number(word: str) -> bool:
    return word[0].isdigit()
