"""Share of a reference answer's content that the reply contains, from 0 to 1; the best reference counts.

Content is values, however they are written (`values`), and stems of the other words without function words. A date
counts as two words, any other value as one. A word that a negation precedes counts as denied. Extra words cost nothing
if all content is there, so read this metric with `rouge_l`. In a reply that is a paragraph a part of it counts half.

A reply scores 0 if it declines, has the opposite of a yes or no, has none of the reference's values, or denies what the
reference states. A yes, a no and the letter of an option are read in whole sentences. For a reference that is a
paragraph the score is the token F1; otherwise a long reply would contain most of it.

Some replies are not graded, and the table of a run counts such turns. A short reply without a word of the reference,
such as "an attorney" for "lawyer", may be a synonym or a mistake. In other languages than English a reply in words is
right if it has all of them and denies as the reference does; otherwise it is not graded.

The rules were tested on answers with human labels: `results/labels.md`, `results/LOG.md`, `evals/bench/correctness.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from agentlab.core.thoughts import split_thought
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import date_recall
from agentlab.evals.scorers.stems import NEGATING, signed_stems, stem
from agentlab.evals.scorers.tables import WORDS, fold, number_of, pattern, rewrite
from agentlab.evals.scorers.values import LOOSE, in_digits, language_of, read_values, with_years
from agentlab.evals.scorers.words import RIGHT, best_score, f1, has_reference, normalise
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

MAX_SENTENCE_WORDS = 25
"""A text with more words is a paragraph, and has some content of most references by chance."""
MAX_SYNONYM_WORDS = 2
"""With at most this many content words in the reference, a reply in other words may be a synonym: no score."""
MAX_BARE_WORDS = 6
"""With at most this many words in the reference, a reply may mean `yes` or `no` without either word."""
MAX_DENIED_WORDS = 4
"""With at most this many words in the reference, one denied word contradicts it; of a longer one the rest may hold."""
MAX_ITEM_WORDS = 3
"""A part of a reference with at most this many content words is an item of a list."""
MAX_DENIAL = 6
"""Outside English, a reply with at most this many characters more than the reference only denies it."""
FAMILY_CHARS = 5
"""Characters that related words share at their beginning: refund and refundable."""


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
    if is_paragraph(reference):
        return f1(normalise(reply), normalise(reference))
    if option := pattern("option").fullmatch(reference):
        return float(option[1] in _chosen(reply))
    language = language_of(f"{reference} {reply}")
    tables = "english_" * (language == "en")  # an English text has no Latin words of other languages
    if polarity := _polarity(reference, tables):
        is_bare = pattern("bare").match(fold(reference).lower()) and len(reference.split()) <= MAX_BARE_WORDS
        if own := _polarity(reply, tables) or (_meaning(reply, tables) if is_bare else ""):
            ours, theirs = (read_values(text, language)[1] for text in (reference, reply))
            alike = [value.equals(other) for value in ours for other in theirs if value.dimension == other.dimension]
            return float(own == polarity and (any(alike) or not alike))  # other words only explain the yes or no
    if _names_another(reply, reference, question, language):
        return 0.0
    share = _share(reply, reference + _asked_unit(reference, question), language)
    if share is not None and _may_mislead(reply, reference, language=language, share=share):
        return 0.0 if language != "en" and pattern("only").search(fold(reply).lower()) else None
    return share


def _names_another(reply: str, reference: str, question: str, language: str) -> bool:
    """Return True for another answer that the question offers, and for a foreign reply that denies the reference."""
    wanted, words, offered = map(_words, (reference, reply, question))
    is_offered = wanted and wanted <= offered and pattern("choice").search(fold(question).lower())
    if is_offered and words.isdisjoint(wanted) and not words.isdisjoint(offered):
        return True
    core = pattern("filler").sub("", fold(reference).lower().strip(" .!"))
    return language != "en" and pattern("denying").search(fold(reply).lower().replace(core, "\0")) is not None


def _may_mislead(*texts: str, language: str, share: float) -> bool:
    """Return True for a number "every" so often on one side alone, and for a part of a foreign list."""
    reply, reference = (fold(text).lower() for text in texts)
    if (pattern("interval").search(reply) is None) != (pattern("interval").search(reference) is None):
        return re.search(r"\d", in_digits(reference, "en")) is not None
    if language == "en" or share < RIGHT:
        return False
    parts = [_words(part) for part in pattern("item").split(reference)]
    n_whole = sum(part <= _words(reply) for part in parts)
    is_list = all(0 < len(part) <= (MAX_ITEM_WORDS if language else 1) for part in parts)
    return 0 < n_whole < len(parts) and is_list and (len(parts) <= MAX_ITEM_WORDS or bool(language))


def _asked_unit(reference: str, question: str) -> str:
    """Return the unit of time that a question wants, as in "how many minutes", if the reference is a bare number."""
    unit = pattern("asked_unit").search(fold(question).lower())
    is_time = unit and re.fullmatch(r"[\d.,\s]+", reference) and number_of("units", unit["unit"])[0] in ("s", "month")
    return f" {unit['unit']}" if unit and is_time else ""


def _excludes(*texts: str) -> bool:
    """Return True if the two texts name different colours, sides or labels: "the green valve" for the red one."""
    table = WORDS["exclusive"]
    words = [normalise(rewrite("rates", fold(text))).split() for text in texts]
    members = [{table[word] for word in each if word in table} for each in words]
    kinds = [{member.partition(".")[0] for member in each - other} for each, other in (members, members[::-1])]
    return not kinds[0].isdisjoint(kinds[1])


def _share(reply: str, reference: str, language: str) -> float | None:
    dates, values, rest = read_values(rewrite("denied", reference), language)
    expected, denied = map(_families, signed_stems(rest))
    expected -= NEGATION_FAMILIES if denied else frozenset()
    expected = frozenset(word for word in expected if len(word) > 1 or not word.isascii()) or expected
    total = len(expected) + len(denied) + sum(value.weight for value in values) + 2 * len(dates)
    if not total:
        return _as_it_is(reply, reference)
    answer = _final(reply) if len(expected) < MAX_DENIED_WORDS else reply
    answer = rewrite("denied", rewrite("corrected", answer))
    reply_dates, reply_values, reply_rest = with_years(read_values(answer, language))
    present, absent = map(_families, signed_stems(reply_rest if dates else f"{reply_rest} . {fold(answer)}"))
    matched = [value for value in values if any(map(value.equals, reply_values))]
    date_points = date_recall(reply_dates, dates) * 2 * len(dates) if dates else 0.0
    is_short = len(expected) + len(denied) + 2 * len(dates) < 3
    strict = {value for value in values if value.dimension not in LOOSE or is_short}
    if (strict and strict.isdisjoint(matched)) or (dates and not date_points):
        return 0.0
    if _excludes(reply, reference) or _contradicts(expected, denied, present, absent):
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


def _validated(share: float, reply: str, reference: str, language: str, has_values: bool) -> float | None:
    """Return 0 outside English for words that one side alone denies, None for words that are not all there."""
    letters = pattern("other_letters")
    if language in ("en", "") and not (letters.search(reference) and letters.search(reply)):
        return share
    texts = [fold(text).lower() for text in (reply, reference)]
    is_name = pattern("full_name").fullmatch(reference) and (share >= RIGHT or pattern("titled").search(reference))
    denies, denied = (any(pattern(name).search(text) for name in ("negative", "excluding")) for text in texts)
    if share >= RIGHT and denies != denied:
        return 0.0 if denied or len(texts[0]) <= len(texts[1]) + MAX_DENIAL else None
    return share if share == 1 or has_values or is_name else None


def is_paragraph(text: str) -> bool:
    return len(text.split()) > MAX_SENTENCE_WORDS


def _final(reply: str) -> str:
    """Return the text after the last "the answer is", or in the last box; otherwise the reply."""
    finals = pattern("final").findall(reply)
    return (finals[-1][0] or finals[-1][1]) if finals else reply


def _chosen(reply: str) -> set[str]:
    """Return the letter of the option that a reply names as its answer; otherwise its first single letter, if any."""
    final = pattern("small_letter").sub(lambda letter: letter[0].upper(), _final(reply))
    letters = [*pattern("letter").finditer(final)]
    marked = [match["letter"] for match in letters if match["marked"]]
    return {marked[-1]} if marked else {match["letter"] for match in letters[:1]}


def _as_it_is(reply: str, reference: str) -> float:
    """Return 1 if the reply equals or contains a reference that has only function words or signs, otherwise 0."""
    reply, reference = fold(reply).strip(" .!\n"), fold(reference).strip(" .!\n")
    named = re.search(rf"(?<![\w+]){re.escape(reference)}(?![\w+])", reply)
    return float(named is not None or reply.lower() == reference.lower())


def _polarity(text: str, tables: str) -> str:
    """Return `yes` or `no` if exactly one of them is among the first three words, otherwise ""."""
    polarities = [name for name in ("yes", "no") if pattern(f"{tables}plain_{name}").match(fold(text).lower())]
    return polarities[0] if len(polarities) == 1 else ""


def _meaning(reply: str, tables: str) -> str:
    """Return `yes` or `no` if the first sentence of a reply means that in other words, otherwise ""."""
    sentence = rewrite("bounds", fold(pattern("sentence_end").split(reply, maxsplit=1)[0]).lower())
    meanings = {"allowing": "yes", "without": "", "negative": "no", "affirmative": "yes"}
    return next(
        (
            meaning
            for name, meaning in meanings.items()
            if pattern(tables * (name != "without") + name).search(sentence)
        ),
        "",
    )


def _words(text: str) -> frozenset[str]:
    return _families(signed_stems(text)[0])


def _families(stems: Iterable[str]) -> frozenset[str]:
    """Return the first characters of each stem, which related words share."""
    return frozenset(stem if stem[0].isdigit() else stem[:FAMILY_CHARS] for stem in stems)


def _contradicts(*families: frozenset[str]) -> bool:
    """Return True if the reply denies a word of a short reference, or states what the reference denies."""
    expected, denied, present, absent = families
    denies = len(expected) <= MAX_DENIED_WORDS and expected & (absent - present)
    return bool(denies or (denied & present and not NEGATION_FAMILIES & present))


def _name_score(reply: str, reference: str) -> float | None:
    """Return 1 for the initials of a name, 0 for another name (Captain Kirk for Captain Cook), otherwise None."""
    if not (pattern("full_name").fullmatch(reference) or reference.isupper()):
        return None
    for name, text in ((reference, reply), (reply, reference)):
        initials = ["".join(re.findall(r"\b[A-Z]", words)) for words in pattern("titled").findall(name)]
        if any(re.search(rf"\b{letters}[A-Z]?\b", text.replace(".", "")) for letters in initials):
            return 1.0
    words, others = (re.findall(r"\b[A-Z][a-z]{2,}", fold(text)) for text in (reference, reply))
    is_other = len(words) > 1 and words[-1][:FAMILY_CHARS].lower() not in fold(reply).lower()
    last = re.search(rf"\b([A-Z][a-z]{{2,}})\s{words[-1]}\b", fold(reply)) if len(words) > 1 else None
    is_relative = last is not None and last[1] not in words and words[0] not in others
    return 0.0 if is_relative or (is_other and {*others[1:]} - {*words}) else None


NEGATION_FAMILIES = _families(map(stem, NEGATING))
