"""Reads answers to questions that offer some: "A) one or B) two?", "the red or the blue one?".

score_option("the second: two", "B", "A) one or B) two?")       # 1.0
"""

from __future__ import annotations

import re

from agentlab.evals.scorers.families import FILLERS, content_families, families
from agentlab.evals.scorers.tables import fold, pattern
from agentlab.evals.scorers.values import language_of, read_values


def score_option(reply: str, reference: str, question: str) -> float | None:
    """Return 1 for the letter of the reference or the text that the question has for it, else 0.

    None means that the reference is no letter of an option.
    """
    is_labelled = re.match(r"\W*[^\W\d_]\s?[).:]", reference) is not None
    if not (is_labelled or pattern("option").fullmatch(reference.upper())):
        return None
    question = pattern("range").sub(" ", question)
    offered = {match["letter"].upper(): match["text"] for match in pattern("offered").finditer(question)}
    offered |= {match["letter"]: match["text"] for match in pattern("lettered").finditer(question)}
    offered = offered if len(offered) > 1 else {}
    option = pattern("option").fullmatch(reference.upper() if offered else reference)
    if option is None and offered and is_labelled:
        letter = reference.strip(" (").upper()[:1]
        option = pattern("option").match(letter) if letter in offered else None  # "M. Vasseur" is a name
    named = _by_opening(reply, offered) or _by_text(reply, offered) or _by_letter(reply)
    return None if option is None else float(option[1] == named)


def names_another(reply: str, reference: str, question: str) -> bool:
    """Return True for a reply without the reference that has another answer which the question offers."""
    if not pattern("choice").search(fold(question).lower()):
        return False
    wanted, words, offered = map(families, (reference, reply, question))
    return bool(wanted) and wanted <= offered and words.isdisjoint(wanted) and not words.isdisjoint(offered)


def final_answer(reply: str) -> str:
    """Return the text after the last "the answer is", or in the last box or answer tag; otherwise the reply."""
    finals = pattern("final").findall(reply)
    return next(filter(None, finals[-1]), "") if finals else reply


def _by_opening(reply: str, offered: dict[str, str]) -> str:
    """Return the letter with which a reply opens, if the question offers it."""
    opening = pattern("opening_letter").match(final_answer(reply))
    return opening["letter"].upper() if opening and opening["letter"].upper() in offered else ""


def _by_text(reply: str, offered: dict[str, str]) -> str:
    """Return the letter of the only option whose text is in the reply, or whose text has all words of the reply."""
    words = families(reply)
    texts = {letter: content_families(text) for letter, text in offered.items()}
    plain = fold(reply).lower()
    whole = [letter for letter, text in texts.items() if text <= words or _is_inside(fold(offered[letter]), plain)]
    longer = {word for word in words - FILLERS if len(word) > 1}
    part = [letter for letter, text in texts.items() if longer and longer <= text]
    return next((named[0] for named in (whole, part) if len(named) == 1), "") or _by_value(reply, offered)


def _is_inside(text: str, reply: str) -> bool:
    """Return True for a text without spaces, as in Chinese, that is part of the reply."""
    return len(text) > 1 and pattern("unspaced").fullmatch(text) is not None and text in reply


def _by_value(reply: str, offered: dict[str, str]) -> str:
    """Return the letter of the only option that has a value of the reply: five days for "5 days"."""
    language = language_of(" ".join([*offered.values(), reply]))
    values = read_values(reply, language)[1]
    same = [
        letter
        for letter, text in offered.items()
        if any(value.equals(other) for value in read_values(text, language)[1] for other in values)
    ]
    return same[0] if len(same) == 1 else ""


def _by_letter(reply: str) -> str:
    """Return the letter of the option that a reply names as its answer; otherwise its first single letter, if any."""
    final = pattern("small_letter").sub(lambda letter: letter[0].upper(), final_answer(reply))
    letters = [*pattern("letter").finditer(final)]
    marked = [match["letter"] for match in letters if match["marked"]]
    others = pattern("other_option").findall(final.upper())
    return (marked[-1:] or [match["letter"] for match in letters[:1]] or others[:1] or [""])[0]
