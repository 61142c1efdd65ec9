"""Share of a reference answer's content that the reply contains, from 0 to 1; the best reference counts.

Content is dates as spans of days, numbers by their value, and stems of the other words without function words. "two" is
2, "1,500" and "1500.0" are 1500, and "-5" is not 5 (see `numbers`). A word right after "not" does not count.

Three replies score 0: one that declines, one with the opposite of a yes or no, and one with none of the reference's
numbers or dates. Extra words cost nothing, so read this metric with `rouge_l`. For a reference that is a paragraph the
score is the token F1; otherwise a long reply would contain most of it.

The thresholds were set and tested on answers with published human labels: `results/LOG.md`,
`evals/bench/correctness.py`.
"""

from __future__ import annotations

import re
from functools import partial

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import date_recall, find_dates
from agentlab.evals.scorers.numbers import in_digits
from agentlab.evals.scorers.stems import content_stems
from agentlab.evals.scorers.words import best_score, f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

MAX_SENTENCE_WORDS = 25
"""A reference with more words is a paragraph."""
OPENING_CHARS = 60
"""Characters of a text that contain its first words."""


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_correctness",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = strip_markers(outcome.reply.text)
    return {"answer_correctness": best_score(turn, partial(correctness, reply))}


def correctness(reply: str, reference: str) -> float:
    """Return the share of the reference's content in the reply, from 0 to 1; a date counts as two words."""
    if declines(reply) and not declines(reference):
        return 0.0
    if is_paragraph(reference):
        return f1(normalise(reply), normalise(reference))
    reply, reference = in_digits(reply), in_digits(reference)
    expected_polarity, reply_polarity = polarity(reference), polarity(reply)
    if expected_polarity and reply_polarity:
        return float(expected_polarity == reply_polarity)  # the words after a yes or no only explain it
    if _normalise_ranges(reply) == _normalise_ranges(reference):
        return 1.0
    dates, rest = find_dates(reference)
    reply_dates, reply_rest = find_dates(reply)
    expected, present = content_stems(rest), content_stems(reply_rest if dates else reply)
    numbers = {stem for stem in expected if stem[0].isdigit()}
    if numbers and not numbers & present:
        return 0.0
    date_points = date_recall(reply_dates, dates) * 2 * len(dates) if dates else 0.0
    if dates and not date_points:
        return 0.0
    total = len(expected) + 2 * len(dates)
    if not total:
        return 0.0
    return (date_points + len(expected & present)) / total


def is_paragraph(reference: str) -> bool:
    return len(reference.split()) > MAX_SENTENCE_WORDS


def polarity(text: str) -> str:
    """Return `yes` or `no` if exactly one of them is among the first three words, otherwise ""."""
    polarities = {word for word in normalise(text[:OPENING_CHARS]).split()[:3] if word in ("yes", "no")}
    return polarities.pop() if len(polarities) == 1 else ""


def _normalise_ranges(text: str) -> str:
    """Return the normalised text; 3-5 becomes two words, since `normalise` would make it 35."""
    return normalise(re.sub(r"(?<=\d)-(?=\d)", " ", text))
