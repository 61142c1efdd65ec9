"""Does the reply say what a reference says, whatever sentence stands around it? From 0 to 1, by the best reference.

What counts is the share of the reference's content that the reply has: dates as days, numbers by their value ("two" is
2, "1,500" and "1500.0" are 1500, "-5" is not 5; see `numbers`), and the other words by their stems, without those that
carry nothing. Words more than the reference has cost nothing, so read it with `rouge_l`. Three things are wrong
whatever else is said: a reply that declines, the other one of yes and no, and none of the numbers where the reference
has some. A word right after a "not" is not said. Of a reference that is a paragraph it is the token F1, for there the
longest reply would have most of it.

Set and tested on answers that others had judged: `results/LOG.md`, `evals/bench/correctness.py`.
"""

from __future__ import annotations

import re

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import find_dates, share_of_date
from agentlab.evals.scorers.numbers import in_digits
from agentlab.evals.scorers.stems import content
from agentlab.evals.scorers.words import f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

SENTENCE = 25
"""Words of a reference up to which it is one; a longer one is a paragraph."""
OPENING = 60
"""Characters in which the first words stand."""


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
    if is_paragraph(reference):
        return f1(normalise(said), normalise(reference))
    said, reference = in_digits(said), in_digits(reference)
    right, ours = polarity(reference), polarity(said)
    if right and ours:
        return float(right == ours)  # what follows is why
    if _as_words(said) == _as_words(reference):
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


def is_paragraph(reference: str) -> bool:
    return len(reference.split()) > SENTENCE


def polarity(text: str) -> str:
    """`yes` or `no` where one of them is among the first words, "" where neither or both are."""
    found = {word for word in normalise(text[:OPENING]).split()[:3] if word in ("yes", "no")}
    return found.pop() if len(found) == 1 else ""


def _as_words(text: str) -> str:
    """Without punctuation, and yet 3-5 is not 35."""
    return normalise(re.sub(r"(?<=\d)-(?=\d)", " ", text))


def _is_number(word: str) -> bool:
    return word[0].isdigit()
