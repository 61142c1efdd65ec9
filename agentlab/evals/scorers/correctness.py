"""Share of a reference answer's content that the reply contains, from 0 to 1; the best reference counts.

Content is values, however they are written (`values`), and stems of the other words without function words. A date
counts as two words, any other value as one. A word that a negation precedes counts as denied. Extra words cost nothing
if all content is there, so read this metric with `rouge_l`. In a reply that is a paragraph a part of it counts half.

A reply scores 0 if it declines, has the opposite of a yes or no, has none of the reference's values, or denies what the
reference states. A yes, a no and the letter of an option are read in whole sentences. For a reference that is a
paragraph the score is the token F1; otherwise a long reply would contain most of it.

Some replies are not graded, and the table of a run counts such turns. A short reply without a word of the reference,
such as "an attorney" for "lawyer", may be a synonym or a mistake, and most causes ("why") are paraphrases. A short
English reply with a part of a list is not graded either; in other languages it is wrong. There a reply in words is
right if it has all of them and denies as the reference does; otherwise it is not graded.

The rules were tested on answers with human labels: `results/labels.md`, `results/LOG.md`, `evals/bench/correctness.py`.
"""

from __future__ import annotations

import functools
import re

from agentlab.core.thoughts import split_thought
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import date_recall, month_first
from agentlab.evals.scorers.families import (
    FAMILY_CHARS,
    FILLERS,
    NEGATIONS,
    Families,
    content_families,
    families,
    signed_families,
)
from agentlab.evals.scorers.options import final_answer, names_another, score_option
from agentlab.evals.scorers.polarity import is_bare, score_yes_or_no, wants_yes_or_no
from agentlab.evals.scorers.tables import WORDS, fold, pattern, rewrite
from agentlab.evals.scorers.values import LOOSE, Value, in_digits, language_of, read_values, with_years
from agentlab.evals.scorers.words import RIGHT, best_score, f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

MAX_SENTENCE_WORDS = 25
"""A text with more words is a paragraph, and has some content of most references by chance."""
MAX_SYNONYM_WORDS = 2
"""With at most this many content words in the reference, a reply in other words may be a synonym: no score."""
MAX_DENIED_WORDS = 4
"""With at most this many words in the reference, one denied word contradicts it; of a longer one the rest may hold."""
MAX_EXTRA_WORDS = 4
"""People differ about a part of an English list, if the reply has at most this many words more than the reference."""
MAX_ITEM_WORDS = 3
"""A part of a reference with at most this many content words is an item of a list."""
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
    reply = split_thought(reply)[0]
    if declines(reply) and not declines(reference):
        return 0.0
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
            return score
    return _by_content(reply, reference, question, language)


def _by_content(reply: str, reference: str, question: str, language: str) -> float | None:
    if names_another(reply, reference, question) or (language != "en" and _denies(reply, reference)):
        return 0.0
    if _differs_in_interval(reply, reference):
        return None
    if (listed := _list_score(reply, reference)) is not None:
        if listed and pattern("order").search(fold(question).lower()):
            return float(_is_in_order(reply, reference))
        if language not in ("en", "") or pattern("other_letters").search(reference):
            return listed
        if not listed and len(reply.split()) <= len(reference.split()) + MAX_EXTRA_WORDS:
            return None
    share = _share(reply, reference + _asked_unit(reference, question), language)
    asks_cause = share is not None and share < RIGHT and pattern("cause").search(fold(question).lower())
    return None if asks_cause and not read_values(reference, language)[1] else share


def _denies(reply: str, reference: str) -> bool:
    """Return True for a reply with a negation directly beside the reference."""
    core = pattern("filler").sub("", fold(reference).lower().strip(" .!"))
    return pattern("denying").search(fold(reply).lower().replace(core, "\0")) is not None


def _differs_in_interval(*texts: str) -> bool:
    """Return True for a number of which one side alone says "every": such words may mean the same or not."""
    reply, reference = (pattern("interval").search(fold(text).lower()) for text in texts)
    return (reply is None) != (reference is None) and re.search(r"\d", in_digits(texts[1], "en")) is not None


def _list_score(reply: str, reference: str) -> float | None:
    """Return 1 for all items of a reference that is a list, 0 for a part of them; None for other references."""
    reply, reference = (fold(rewrite("denied", text)).lower() for text in (reply, reference))
    parts = [content_families(part) for part in pattern("item").split(reference)]
    is_list = len(parts) > 2 or (len(parts) == 2 and pattern("listing").search(reference))
    if not is_list or re.search(r"\d", reference) or not all(0 < len(part) <= MAX_ITEM_WORDS for part in parts):
        return None
    words, excludes = families(reply), _has_any(reply, "excluding", "without")
    n_whole = sum(part <= words or (not reference.isascii() and "".join(part) in reply) for part in parts)
    is_whole = n_whole == len(parts)
    return None if not n_whole or is_paragraph(reply) or (is_whole and excludes) else float(is_whole)


def _is_in_order(reply: str, reference: str) -> bool:
    """Return True if the first word of each item stands in the reply after that of the item before."""
    reply, reference = (fold(text).lower() for text in (reply, reference))
    places = [reply.find(item.strip()[:FAMILY_CHARS]) for item in pattern("item").split(reference)]
    return places == sorted(places)


def _asked_unit(reference: str, question: str) -> str:
    """Return the unit that a question wants, as in "how many minutes", if the reference is a bare number."""
    is_number = re.fullmatch(r"[\d.,\s]+", reference)
    unit = pattern("asked_unit").search(fold(question).lower()) if is_number else None
    return f" {unit['unit']}" if unit else ""


def _excludes(*texts: str) -> bool:
    """Return True if the two texts name different colours, sides or labels: "the green valve" for the red one."""
    table = WORDS["exclusive"]
    words = [normalise(rewrite("rates", fold(text))).split() for text in texts]
    members = [{table[word] for word in each if word in table} for each in words]
    kinds = [{member.partition(".")[0] for member in each - other} for each, other in (members, members[::-1])]
    return not kinds[0].isdisjoint(kinds[1])


def _share(reply: str, reference: str, language: str) -> float | None:
    dated = reply if read_values(_answer(reply, 0), language)[0] else ""
    dates, values, rest = read_values(rewrite("denied", reference), language, dated=dated)
    expected, denied = signed_families(rest)
    expected -= NEGATIONS if denied else frozenset()
    expected = frozenset(word for word in expected if len(word) > 1 or not word.isascii()) or expected
    if language != "en":
        expected = expected - FILLERS or (frozenset() if values or dates else expected)
    total = len(expected) + len(denied) + sum(value.weight for value in values) + 2 * len(dates)
    if not total:
        return _as_it_is(reply, reference)
    answer = _answer(reply, len(expected))
    reply_dates, reply_values, reply_rest = with_years(read_values(answer, language, dated=reference if dates else ""))
    if language == "en" and re.search(r"\d/\d", answer):
        reply_dates = [*reply_dates, *month_first(reply_dates)]
    present, absent = signed_families(reply_rest if dates else f"{reply_rest} . {fold(answer)}")
    matched = [value for value in values if any(map(value.equals, reply_values))]
    date_points = date_recall(reply_dates, dates) * 2 * len(dates) if dates else 0.0
    is_short = len(expected) + len(denied) + 2 * len(dates) < 3
    strict = {value for value in values if value.dimension not in LOOSE or is_short}
    if (strict and strict.isdisjoint(matched)) or (dates and not date_points):
        return 0.0
    if _differ_in_order(values, matched, reply_values, reference) or _excludes(reply, reference):
        return 0.0
    if _contradicts(expected, denied, present, absent):
        return 0.0
    if (name := _name_score(reply, reference)) is not None:
        return name
    points = date_points + sum(value.weight for value in matched)
    points += len(expected & present) + len(denied & (absent | present))
    is_new = not points and not reply_values and 0 < len(present) <= len(expected) + 1 <= MAX_SYNONYM_WORDS + 1
    if is_new and not pattern("has_name").search(reference):
        return None
    share = points / total / (2 if is_short and matched != values else 1)
    share /= 2 if share < 1 and is_paragraph(reply) else 1
    return _validated(share, reply, reference, language, bool(values or dates))


def _differ_in_order(values: list[Value], matched: list[Value], reply_values: list[Value], reference: str) -> bool:
    """Return True for two values whose order tells something, as in "from 3 to 5", unless both are there in order."""
    if len(values) != 2 or not pattern("ordered").search(fold(reference).lower()):
        return False
    places = [[*map(value.equals, reply_values)].index(True) for value in matched]
    return len(places) < 2 or places[0] > places[1]


def _validated(share: float, reply: str, reference: str, language: str, has_values: bool) -> float | None:
    """Return 0 outside English for words that one side alone denies, None for words that are not all there."""
    letters = pattern("other_letters")
    if language in ("en", "") and not (letters.search(reference) and letters.search(reply)):
        return share
    # In digits, as "ten minus five" denies nothing.
    text, reference_text = (in_digits(_answer(each, MAX_DENIED_WORDS), language) for each in (reply, reference))
    if has_values and not _has_any(reference_text, *DENIALS):
        text = " ".join(clause for clause in pattern("clause").split(text) if re.search(r"\d", clause))
    is_name = pattern("full_name").fullmatch(reference) and (share >= RIGHT or pattern("titled").search(reference))
    denies, denied = (_has_any(each, *DENIALS) for each in (text, reference_text))
    if share >= RIGHT and denies != denied:
        is_whole = share == 1 and not has_values and len(text) <= MAX_DENYING * (1 + text.isascii())
        return 0.0 if denied or is_whole or len(text) <= len(reference_text) + MAX_DENIAL else None
    return share if share == 1 or has_values or is_name else None


def _has_any(text: str, *patterns: str) -> bool:
    return any(pattern(name).search(text) for name in patterns)


def is_paragraph(text: str) -> bool:
    return len(text.split()) > MAX_SENTENCE_WORDS


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


def _name_score(reply: str, reference: str) -> float | None:
    """Return 1 for the initials of a name, 0 for another name (Captain Kirk for Captain Cook), otherwise None."""
    if not (pattern("full_name").fullmatch(reference) or reference.isupper()):
        return None
    for name, text in ((reference, reply), (reply, reference)):
        initials = ["".join(re.findall(r"\b[A-Z]", words)) for words in pattern("titled").findall(name)]
        if any(re.search(rf"\b{letters}[A-Z]?\b", text.replace(".", "")) for letters in initials):
            return 1.0
    words, others = (re.findall(r"\b[A-Z]\w*[a-z]\w+", fold(text)) for text in (reference, reply))
    is_other = len(words) > 1 and words[-1][:FAMILY_CHARS].lower() not in fold(reply).lower()
    last = re.search(rf"\b([A-Z]\w*[a-z]\w+)\s{words[-1]}\b", fold(reply)) if len(words) > 1 else None
    is_relative = last is not None and last[1] not in words and words[0] not in others
    if len(words) > 1 and not is_other and not is_relative and not {*others[1:]} - {*words}:
        return 1.0
    return 0.0 if is_relative or (is_other and {*others[1:]} - {*words}) else None
