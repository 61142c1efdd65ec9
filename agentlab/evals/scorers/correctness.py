"""Share of a reference answer's content that the reply contains, from 0 to 1; the best reference counts.

Content is values, however they are written (`values`), and stems of the other words without function words. A date
counts as two words, any other value as one. A word that a negation precedes counts as denied. Extra words cost nothing
if all content is there, so read this metric with `rouge_l`. In a reply that is a paragraph a part of it counts half.

A reply scores 0 if it declines, has the opposite of a yes or no, has none of the reference's values, or denies what the
reference states. A yes, a no and the letter of an option are read in whole sentences. For a reference that is a
paragraph the score is the token F1; otherwise a long reply would contain most of it.

Some replies are not graded, and the table of a run counts such turns. A short reply without a word of the reference,
such as "an attorney" for "lawyer", may be a synonym or a mistake, and most causes ("why") are paraphrases. A short
reply may have the reference in a clause about something else: "Moss won, Fly came third" for "Fly". A short English
reply with a part of a list is not graded either; in other languages it is wrong. There a reply in words is right if it
has all of them and denies as the reference does; otherwise it is not graded. Nor is one with a word such as "only", or
one without any value if the reference has some.

The rules were tested on answers with human labels: `results/labels.md`, `results/LOG.md`, `evals/bench/correctness.py`.
"""

from __future__ import annotations

import functools
import re

from agentlab.core.thoughts import split_thought
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import century_before, date_recall, month_first
from agentlab.evals.scorers.families import (
    FILLERS,
    NEGATIONS,
    Families,
    families,
    signed_families,
)
from agentlab.evals.scorers.focus import is_beside, repeats, sets_apart
from agentlab.evals.scorers.lists import is_in_order, score_list
from agentlab.evals.scorers.names import is_another_form, score_name
from agentlab.evals.scorers.options import final_answer, names_another, score_option
from agentlab.evals.scorers.polarity import is_bare, score_yes_or_no, wants_yes_or_no, without_in_the
from agentlab.evals.scorers.tables import WORDS, fold, has_any, pattern, rewrite
from agentlab.evals.scorers.values import HOURS, LOOSE, Content, Value, in_digits, language_of, read_values, with_years
from agentlab.evals.scorers.words import RIGHT, best_score, f1, has_reference, is_paragraph, normalise
from agentlab.knowledge import refusal
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines, shortened

MAX_SYNONYM_WORDS = 2
"""With at most this many content words in the reference, a reply in other words may be a synonym: no score."""
MAX_DENIED_WORDS = 4
"""With at most this many words in the reference, one denied word contradicts it; of a longer one the rest may hold."""
MAX_EXTRA_WORDS = 4
"""People differ about a part of an English list, if the reply has at most this many words more than the reference."""
DENIALS = ("negative", "excluding")
"""Patterns of which a text that denies something has one."""
MAX_DENIAL = 6
"""Outside English, a reply with at most this many characters more than the reference only denies it."""
MAX_DENYING = 40
"""Outside English, a denial in a reply with at most this many characters, twice as many Latin ones, is of its words."""


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("answer_correctness",) if has_reference(turn) else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    reply = strip_markers(outcome.reply.text)
    return {"answer_correctness": best_score(turn, functools.partial(correctness, reply, question=turn.user))}


def correctness(reply: str, reference: str, question: str = "") -> float | None:
    """Return the share of the reference's content in the reply, from 0 to 1; None if words do not decide.

    The question gives a bare number its unit of time, and tells which other answers it offers.
    """
    reply, reference = (shortened(text) for text in (split_thought(reply)[0], reference))
    if declines(reply) and not declines(reference):
        return 0.0
    score = _graded(reply, reference, question)
    language = refusal.language_of(reply)
    if language != "en" and declines(reply, language) and not declines(reference, language):
        return 0.0 if score is None or score < RIGHT else None  # "I do not know" has a "not" of "no"
    return score


def _graded(reply: str, reference: str, question: str) -> float | None:
    reply = _with_code(reply, reference)
    if reply.strip() == reference.strip():
        return 1.0
    if is_paragraph(reference):
        return f1(normalise(reply), normalise(reference))
    if (score := score_option(reply, reference, question)) is not None:
        return score
    language = language_of(f"{question} {reference} {reply}")
    if (forms := pattern("alternative").fullmatch(reference)) and not read_values(forms[2], language)[2].strip():
        scores = [correctness(reply, form, question) for form in forms.groups()]  # 30 kg (66 lb)
        return max((score for score in scores if score is not None), default=None)
    if wanted := wants_yes_or_no(reference, question, language):
        score = score_yes_or_no(reply, reference, wanted, question, language)
        if score is not None or is_bare(reference, max_words=1):
            return 0.0 if score and _excludes(reply, reference) else score
        reference = pattern("leading_answer").sub("", fold(reference))  # "it is closed" tells as much as "no"
    return _by_content(reply, reference, question, language)


def _with_code(reply: str, reference: str) -> str:
    """Return the reply with the reference, if it is a code, written as there: B-117 for B117."""
    if not pattern("code").fullmatch(reference):
        return reply
    parts = r"[\s./-]?".join(re.findall(r"[A-Z]+|\d+", reference))
    return re.sub(rf"(?<![^\W_]){parts}(?![^\W_])", reference.strip(), reply)


def _by_content(reply: str, reference: str, question: str, language: str) -> float | None:
    if names_another(reply, reference, question) or (language != "en" and _denies(reply, reference, language)):
        return 0.0
    if _differs_in_interval(reply, reference, language):
        return None
    if (listed := score_list(reply, reference, language)) is not None:
        if listed and pattern("order").search(fold(question).lower()):
            return float(is_in_order(reply, reference))
        if language not in ("en", "") or pattern("other_letters").search(reference):
            return listed
        if not listed and len(reply.split()) <= len(reference.split()) + MAX_EXTRA_WORDS:
            return None
    share = _share(reply, reference + _asked_unit(reference, question), language, question)
    if share is not None and share >= RIGHT:
        is_short = len(reference.split()) <= MAX_SYNONYM_WORDS
        if (language == "en" and _denies(reply, reference, language)) or (
            is_short and is_another_form(reply, reference)
        ):
            return None
        has_words_alone = language != "en" and not any(read_values(reference, language)[:2])
        if (has_words_alone and sets_apart(reply, reference)) or is_beside(reply, reference, question):
            return None
    asks_cause = share is not None and share < RIGHT and pattern("cause").search(fold(question).lower())
    return None if asks_cause and not read_values(reference, language)[1] else share


def _denies(reply: str, reference: str, language: str) -> bool:
    """Return True for a reply with a negation beside the reference: in English after it, as in "Tom did not win"."""
    core, name = fold(reference).lower().strip(" .!"), "denied_of"
    if language != "en":
        core, name = pattern("filler").sub("", core), "denying"
    return pattern(name).search(fold(reply).lower().replace(core, "\0")) is not None


def _differs_in_interval(reply: str, reference: str, language: str) -> bool:
    """Return True for a number of which one side alone says "every": such words may mean the same or not."""
    ours, theirs = (pattern("interval").search(fold(text).lower()) for text in (reference, reply))
    return (ours is None) != (theirs is None) and re.search(r"\d", in_digits(reference, language)) is not None


def _asked_unit(reference: str, question: str) -> str:
    """Return the unit that a question wants, as in "how many minutes", if the reference is a bare number."""
    is_number = re.fullmatch(r"[\d.,\s]+", reference)
    unit = pattern("asked_unit").search(fold(question).lower()) if is_number else None
    return f" {unit['unit']}" if unit else ""


def _excludes(*texts: str) -> bool:
    """Return True if the two texts name different colours, sides or labels: "the green valve" for the red one."""
    texts = (rewrite("denied", texts[0]), texts[1])
    for name in ("label", "letter_label"):
        labels = [{label.upper() for label in pattern(name).findall(text)} for text in texts]
        if all(labels) and not labels[1] <= labels[0] and (name == "label" or len(labels[1]) == 1):
            return True
    table = WORDS["exclusive"]
    words = [normalise(rewrite("rates", fold(text))).split() for text in texts]
    members = [{table[word] for word in each if word in table} for each in words]
    kinds = [{member.partition(".")[0] for member in each - other} for each, other in (members, members[::-1])]
    return not kinds[0].isdisjoint(kinds[1])


def _share(reply: str, reference: str, language: str, question: str) -> float | None:
    reply, reference = _with_times(reply, reference, language)
    dated = reply if read_values(_answer(reply, 0), language)[0] else ""
    dates, values, rest = read_values(rewrite("denied", reference), language, dated=dated)
    expected, denied = _content_words(rest, reference, language, has_values=bool(values or dates))
    total = len(expected) + len(denied) + sum(value.weight for value in values) + 2 * len(dates)
    if not total:
        return _as_it_is(reply, reference)
    answer = _answer(reply, len(expected))
    reply_dates, reply_values, reply_rest = _reply_content(answer, reference if dates else "", language)
    present, absent = signed_families(reply_rest if dates else f"{reply_rest} . {fold(answer)}")
    matched = [value for value in values if any(map(value.equals, reply_values))]
    date_points = date_recall(reply_dates, dates) * 2 * len(dates) if dates else 0.0
    is_short = len(expected) + len(denied) + 2 * len(dates) < 3
    strict = {value for value in values if value.dimension not in LOOSE or is_short}
    if (strict and strict.isdisjoint(matched)) or (dates and not date_points):
        has_none = bool(present) and not reply_dates and (not reply_values or (bool(dates) and not values))
        is_unread = has_none and not _is_english(language, reply, reference) and not repeats(question, reply)
        return None if is_unread else 0.0
    differs = _differ_in_order(values, matched, reply_values, reference) or _excludes(reply, reference)
    if differs or _contradicts(expected, denied, present, absent):
        return 0.0
    if not (dates or values) and (name := score_name(reply, reference)) is not None:
        return name
    points = date_points + sum(value.weight for value in matched)
    points += len(expected & present) + len(denied & (absent | present))
    if not points and not reply_values and _may_be_synonym(expected, present, reply, reference, question):
        return None
    share = points / total / (2 if is_short and matched != values else 1)
    if (values or dates) and matched == values and date_points == 2 * len(dates) and _is_bare_value(reply_rest):
        share = max(share, RIGHT)  # "25 %" for "1/4 of the price"
    share /= 2 if share < 1 and is_paragraph(reply) else 1
    return _validated(share, reply, reference, language, bool(values or dates))


def _content_words(rest: str, reference: str, language: str, *, has_values: bool) -> tuple[Families, Families]:
    """Return the words of a reference beside its values that count: those that it states, and those that it denies."""
    expected, denied = signed_families(rest)
    expected -= NEGATIONS if denied else frozenset()
    if longer := frozenset(word for word in expected if len(word) > 1 or not word.isascii()):
        expected = longer
    elif not re.search(r"\b[A-Z]\b|^\W*\w\W*$", reference):  # "l'or" has no letter that stands for itself
        expected = frozenset()
    if language != "en":
        expected = expected - FILLERS or (frozenset() if has_values else expected)
    return expected, denied


def _reply_content(answer: str, dated: str, language: str) -> Content:
    """Return the content of a reply; beside a `dated` reference a date in numbers may be read in two ways."""
    dates, values, rest = with_years(read_values(answer, language, dated=dated))
    if language == "en" and re.search(r"\d/\d", answer):
        dates = [*dates, *month_first(dates)]
    if pattern("short_year").search(answer):
        dates = [*dates, *century_before(dates)]
    return dates, values, rest


def _may_be_synonym(expected: Families, present: Families, reply: str, reference: str, question: str) -> bool:
    """Return True for other words than a short reference, if they are few or none repeats the question."""
    if not present or len(expected) > MAX_SYNONYM_WORDS or pattern("has_name").search(reference):
        return False
    return len(present) <= len(expected) + 1 or (bool(question) and not repeats(question, reply))


def _with_times(reply: str, reference: str, language: str) -> list[str]:
    """Return both texts; if one has a time of day and neither a date, "6.45" is a time, too."""
    texts = [reply, reference]
    if not any(map(pattern("dotted").search, texts)):
        return texts
    contents = [read_values(text, language) for text in texts]
    has_time = any(HOURS in value.kinds for _, values, _ in contents for value in values)
    if not has_time or any(dates for dates, *_ in contents):
        return texts
    return [pattern("dotted").sub(r"\1:\2", text) for text in texts]


def _is_bare_value(rest: str) -> bool:
    """Return True for the rest of a text, without its values, that has no word of its own."""
    return all(len(word) < 3 for word in families(rest) - FILLERS)


def _differ_in_order(values: list[Value], matched: list[Value], reply_values: list[Value], reference: str) -> bool:
    """Return True for two values whose order tells something, as in "from 3 to 5", unless both are there in order."""
    if len(values) != 2 or not pattern("ordered").search(fold(reference).lower()):
        return False
    places = [[*map(value.equals, reply_values)].index(True) for value in matched]
    return len(places) < 2 or places[0] > places[1]


def _validated(share: float, reply: str, reference: str, language: str, has_values: bool) -> float | None:
    """Return 0 outside English for words that one side alone denies, None for words that are not all there."""
    if _is_english(language, reply, reference):
        return share
    # In digits, as "ten minus five" denies nothing.
    texts = [in_digits(_answer(each, MAX_DENIED_WORDS), language) for each in (reply, reference)]
    text, reference_text = (without_in_the(each, language) for each in texts)
    if has_values and not has_any(reference_text, *DENIALS):
        text = " ".join(clause for clause in pattern("clause").split(text) if re.search(r"\d", clause))
    other = pattern("not_another").search(text)
    if other and families(other[0]).isdisjoint(families(reference_text)):
        text = text[: other.start()]
    is_name = pattern("full_name").fullmatch(reference) and (share >= RIGHT or pattern("titled").search(reference))
    denies, denied = (has_any(each, *DENIALS) for each in (text, reference_text))
    if share >= RIGHT and denies != denied:
        is_whole = share == 1 and not has_values and len(text) <= MAX_DENYING * (1 + text.isascii())
        return 0.0 if denied or is_whole or len(text) <= len(reference_text) + MAX_DENIAL else None
    return share if share == 1 or has_values or is_name else None


def _is_english(language: str, *texts: str) -> bool:
    """Return True for English, and for Latin words without a sign of their language, such as a name."""
    return language in ("en", "") and not all(pattern("other_letters").search(text) for text in texts)


def _answer(reply: str, n_words: int) -> str:
    """Return what a reply finally states, to a reference of so many words."""
    answer = final_answer(reply) if n_words < MAX_DENIED_WORDS else reply
    return rewrite("denied", rewrite("corrected", answer))


def _as_it_is(reply: str, reference: str) -> float:
    """Return 1 if the reply equals or contains a reference that has only function words or signs, otherwise 0."""
    reply, reference = fold(reply).strip(" .!\n"), fold(reference).strip(" .!\n")
    named = re.search(rf"(?<![\w+]){re.escape(reference)}(?![\w+])", reply)
    return float(named is not None or reply.lower() == reference.lower())


def _contradicts(*sets: Families) -> bool:
    """Return True if the reply denies a word of a short reference, or states what the reference denies."""
    expected, denied, present, absent = sets
    denies = len(expected) <= MAX_DENIED_WORDS and expected & (absent - present)
    return bool(denies or (denied & present and not NEGATIONS & present))
